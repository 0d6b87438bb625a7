"""Spark's options: what is chosen, what the user's own beat, and what must not be said aloud."""

import pytest

from corpusmill.errors import ConfigError
from corpusmill.settings import Settings, SparkSettings
from spark_jobs import options

CLUSTER = "spark://127.0.0.1:7077"


def test_a_local_master_is_reached_by_nobody_else() -> None:
    made = options.start_options(Settings(spark=SparkSettings()), "app")
    assert made["spark.driver.host"] == made["spark.driver.bindAddress"] == "127.0.0.1"
    assert "spark.speculation" not in made


def test_the_users_own_come_last() -> None:
    conf = {"spark.task.maxFailures": "2", "spark.driver.host": "other"}
    made = options.start_options(Settings(spark=SparkSettings(master=CLUSTER, conf=conf)), "app")
    assert made["spark.task.maxFailures"] == "2" and made["spark.driver.host"] == "other"


def test_executors_reach_the_driver_by_the_address_that_leads_to_the_master() -> None:
    made = options.start_options(Settings(spark=SparkSettings(master=CLUSTER)), "app")
    assert made["spark.driver.host"] == made["spark.driver.bindAddress"] == "127.0.0.1"
    elsewhere = options.start_options(Settings(spark=SparkSettings(master=CLUSTER, driver_host="192.0.2.77")), "app")
    assert elsewhere["spark.driver.host"] == "192.0.2.77"
    assert elsewhere["spark.driver.bindAddress"] == "0.0.0.0"  # an address that only others see


def test_a_driver_in_the_cluster_is_not_told_this_hosts_address() -> None:
    own = SparkSettings(master="k8s://https://127.0.0.1:6443", submit="spark-submit", deploy_mode="cluster")
    assert "spark.driver.host" not in options.start_options(Settings(spark=own), "app")


def test_a_silent_host_is_given_up_within_a_minute() -> None:
    made = options.session_options(SparkSettings(master=CLUSTER))
    timeout, look, beat = (
        int(made[f"spark.{name}"].rstrip("s"))
        for name in ("network.timeout", "network.timeoutInterval", "executor.heartbeatInterval")
    )
    assert timeout + look <= 55 and beat * 4 <= timeout


def test_executors_get_the_variables_that_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    made = options.start_options(Settings(spark=SparkSettings(master=CLUSTER, env=("AWS_ACCESS_KEY_ID",))), "app")
    assert made["spark.executorEnv.AWS_ACCESS_KEY_ID"] == "id"
    import re

    assert re.search(made["spark.redaction.regex"], "spark.executorEnv.AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(ConfigError, match="AWS_ACCESS_KEY_ID"):
        options.start_options(Settings(spark=SparkSettings(master=CLUSTER, env=("AWS_ACCESS_KEY_ID",))), "app")


def test_the_clusters_secret_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    own = SparkSettings(master=CLUSTER, auth_secret_env="A_SECRET")
    with pytest.raises(ConfigError, match="A_SECRET"):
        options.start_options(Settings(spark=own), "app")
    monkeypatch.setenv("A_SECRET", "hush")
    made = options.start_options(Settings(spark=own), "app")
    assert made["spark.authenticate"] == "true" and made["spark.authenticate.secret"] == "hush"


def test_packages_archives_and_python_files() -> None:
    own = SparkSettings(packages=("a:b:1",), archives=("s3a://x/env.tar.gz#env",), py_files=("x.py", "y.zip"))
    made = options.start_options(Settings(spark=own), "app", "g:f:2")
    assert made["spark.jars.packages"] == "a:b:1,g:f:2"
    assert made["spark.archives"] == "s3a://x/env.tar.gz#env"
    assert made["spark.submit.pyFiles"] == "x.py,y.zip"
    assert own.workers_python == "./env/bin/python"
    assert SparkSettings(archives=own.archives, python="/p").workers_python == "/p"


def test_how_many_executors() -> None:
    alone = SparkSettings(master=CLUSTER, executors=3)
    with pytest.raises(ConfigError, match="executor_cores"):
        options.start_options(Settings(spark=alone), "app")
    two = SparkSettings(master=CLUSTER, executors=3, executor_cores=2)
    assert options.start_options(Settings(spark=two), "app")["spark.cores.max"] == "6"
    pods = options.start_options(
        Settings(spark=SparkSettings(master="k8s://http://127.0.0.1:1", executors=3, executor_cores=2)), "app"
    )
    assert pods["spark.executor.instances"] == "3"
    assert pods["spark.executor.memoryOverhead"] == "4992m"


@pytest.mark.parametrize(
    ("master", "found"),
    [
        ("local[2]", []),
        ("yarn", []),
        ("spark://a:7077,b:7078", [("a", 7077), ("b", 7078)]),
        ("spark://[::1]:7077", [("::1", 7077)]),
        ("k8s://https://api.example.com", [("api.example.com", 443)]),
        ("k8s://10.0.0.1:6443", [("10.0.0.1", 6443)]),
        ("k8s://http://127.0.0.1", [("127.0.0.1", 80)]),
    ],
)
def test_the_addresses_of_a_master(master: str, found: list[tuple[str, int]]) -> None:
    assert options.master_addresses(master) == found


def test_a_master_whose_name_leads_nowhere() -> None:
    with pytest.raises(ConfigError, match=r"no way from here.*nowhere\.invalid"):
        options.own_address("spark://nowhere.invalid:7077")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"master": "mesos://x"}, "must be local"),
        ({"master": "local-cluster[2,1,512]"}, "must be local"),
        ({"master": "yarn", "deploy_mode": "cluster"}, "spark-submit"),
        ({"master": CLUSTER, "deploy_mode": "cluster", "submit": "spark-submit"}, "no Python driver"),
        ({"archives": ("env.tar.gz",)}, "#NAME"),
    ],
)
def test_settings_that_cannot_start(given: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        SparkSettings(**given)


def test_properties_keep_every_sign() -> None:
    made = options.as_properties({"a b": " x=y:z\\ #", "c": '{"k": "v\n"}'})
    assert made == 'a\\ b=\\ x=y:z\\\\ #\nc={"k": "v\\n"}\n'
