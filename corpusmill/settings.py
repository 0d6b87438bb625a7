"""The typed settings tree. Where values come from (defaults, YAML, environment, flags) is settings_sources.py."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from corpusmill.methods.registry import attribute, method_settings_types
from corpusmill.models.contracts import Role


class Section(BaseModel):
    """Base of all settings: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class SourceSettings(Section):
    """Which documents of a source are taken, and what the columns of record sources mean."""

    include: tuple[str, ...] = ()  # glob patterns on the relative path; empty: all
    exclude: tuple[str, ...] = ()
    hidden: bool = False  # take files and folders whose name starts with a dot
    id_column: str = "id"
    text_column: str = "text"
    title_column: str | None = "title"
    labels_column: str | None = "labels"
    max_bytes: int = Field(256 * 1024 * 1024, gt=0)  # a larger document is quarantined


class ConvertSettings(Section):
    """Converters run in their own processes, within these limits."""

    timeout_s: float = Field(60.0, gt=0)
    memory_mb: int = Field(2048, ge=256)
    attempts: int = Field(3, ge=1)  # for crashes, time-outs and read errors; a refusal (a password) is final at once


class ChunkSettings(Section):
    """`paragraphs`: dynamic partitioning (FlexStructRAG section 1) into chunks of about `ct_min` to `ct_max` tokens.
    `windows`: `ct_max` tokens each, of which `overlap` are also the last of the one before."""

    form: Literal["paragraphs", "windows"] = "paragraphs"
    ct_min: int = Field(500, ge=1)
    ct_max: int = Field(600, ge=1)
    overlap: int = Field(0, ge=0)
    tokenizer: Literal["words", "wordpiece"] = "words"

    @model_validator(mode="after")
    def _ordered(self) -> "ChunkSettings":
        if self.ct_min > self.ct_max:
            raise ValueError(f"ct_min ({self.ct_min}) must not exceed ct_max ({self.ct_max})")
        if self.overlap and self.form != "windows":
            raise ValueError(f"overlap ({self.overlap}) belongs to the form windows, not {self.form}")
        if self.overlap >= self.ct_max:
            raise ValueError(f"overlap ({self.overlap}) must be less than ct_max ({self.ct_max})")
        return self


class VllmSettings(Section):
    """The engine of a `vllm` back-end and how many replicas of it run. What is None is vLLM's own choice.

    A replica is one engine on one node, with `tensor_parallel_size` GPUs or, with `gpus` 0, on vLLM's CPU build.
    """

    application: str | None = None  # a Ray Serve application that runs already; by default one is started for the run
    tensor_parallel_size: int = Field(1, ge=1)
    gpus: int | None = Field(None, ge=0)  # of a replica: tensor_parallel_size, or 0
    cpus: float = Field(1.0, ge=0)  # that a replica claims on a cluster
    min_replicas: int = Field(1, ge=0)
    max_replicas: int | None = Field(None, ge=1)  # more than min_replicas: as many as the calls in flight ask for
    gpu_memory_utilization: float = Field(0.9, gt=0, le=1)
    kv_cache_gb: float | None = Field(None, gt=0)  # instead of what gpu_memory_utilization leaves
    max_model_len: int | None = Field(None, ge=256)
    max_num_seqs: int = Field(64, ge=1)
    max_num_batched_tokens: int | None = Field(None, ge=256)
    block_size: int | None = Field(None, ge=8)  # tokens; the grain of the prefix cache
    enable_prefix_caching: bool = True
    enforce_eager: bool = False
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    quantization: str | None = None
    revision: str | None = None
    max_queued_requests: int = Field(4096, ge=1)  # of one worker, beyond what the replicas have taken
    start_timeout_s: float = Field(1800.0, gt=0)
    keep_s: float = Field(300.0, ge=0)  # how long an application outlives the last stage that used it

    @model_validator(mode="after")
    def _fitting(self) -> "VllmSettings":
        if self.gpus not in (None, 0, self.tensor_parallel_size):
            raise ValueError(
                f"gpus ({self.gpus}) must be tensor_parallel_size ({self.tensor_parallel_size}), or 0 for the CPU"
            )
        if self.max_replicas is not None and self.max_replicas < self.min_replicas:
            raise ValueError(f"max_replicas ({self.max_replicas}) is less than min_replicas ({self.min_replicas})")
        return self

    @property
    def gpus_per_replica(self) -> int:
        return self.tensor_parallel_size if self.gpus is None else self.gpus

    @property
    def most_replicas(self) -> int:
        return self.max_replicas or max(1, self.min_replicas)


class EndpointShare(Section):
    """One of several endpoints of a model, with its share of the documents."""

    base_url: str
    weight: float = Field(1.0, gt=0)
    api_key_env: str | None = "OPENAI_API_KEY"


class ModelSettings(Section):
    """One language model. `api_key_env` names the environment variable that holds the key; keys are never stored."""

    backend: Literal["embedded", "openai", "vllm"] = "embedded"
    model: str | None = None
    base_url: str | None = None
    api_key_env: str | None = "OPENAI_API_KEY"
    endpoints: tuple[EndpointShare, ...] = ()  # instead of base_url: several that serve the same model
    vllm: VllmSettings = VllmSettings()
    temperature: float = Field(0.0, ge=0, le=2)
    seed: int | None = 0
    structured: Literal["json_schema", "json_object", "prompt"] = "json_schema"
    timeout_s: float = Field(120.0, gt=0)
    retries: int = Field(6, ge=0)
    requests_per_minute: float | None = Field(None, gt=0)
    tokens_per_minute: float | None = Field(None, gt=0)
    max_output_tokens: int | None = Field(None, ge=16)
    price_in: float = Field(0.0, ge=0)  # currency units a million prompt tokens
    price_out: float = Field(0.0, ge=0)
    gpu_tokens_per_second: float | None = Field(None, gt=0)  # of one GPU, prompt and completion; for estimates alone

    @model_validator(mode="after")
    def _complete(self) -> "ModelSettings":
        if self.backend != "embedded" and not self.model:
            raise ValueError(f"backend {self.backend!r} needs a `model`")
        if self.endpoints and self.backend != "openai":
            raise ValueError(f"endpoints belong to the backend openai, not {self.backend!r}")
        if self.endpoints and self.base_url:
            raise ValueError(f"give base_url ({self.base_url!r}) or endpoints, not both")
        names = [share.base_url.rstrip("/") for share in self.endpoints]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"endpoint {twice[0]!r} is given twice; use its weight")
        return self


class ModelsSettings(Section):
    """`default` serves every role that has no model of its own."""

    default: ModelSettings = ModelSettings()
    extract: ModelSettings | None = None
    summarise: ModelSettings | None = None
    plan: ModelSettings | None = None
    rerank: ModelSettings | None = None
    answer: ModelSettings | None = None

    def of(self, role: Role) -> ModelSettings:
        return getattr(self, role) or self.default


class EmbedderSettings(Section):
    """`minilm`: an installed package, on the CPU; `torch`: a local model; `openai`: any compatible endpoint."""

    backend: Literal["minilm", "openai", "torch", "hash"] = "minilm"
    model: str | None = None
    base_url: str | None = None
    api_key_env: str | None = "OPENAI_API_KEY"
    dim: int | None = Field(None, ge=1)
    query_prefix: str = ""
    passage_prefix: str = ""
    batch_size: int = Field(64, ge=1)
    max_tokens: int = Field(256, ge=8)
    dtype: Literal["float32", "float16", "bfloat16"] | None = None  # torch: of the weights; by default the model's own
    timeout_s: float = Field(60.0, gt=0)
    retries: int = Field(6, ge=0)


class RerankSettings(Section):
    """`embedded`: on the CPU, with an installed package; `torch`: a local cross-encoder; `endpoint`: Cohere's form of
    POST {base_url}/rerank, which Jina, vLLM and others serve; `llm`: the language model of the role `rerank`."""

    backend: Literal["embedded", "torch", "endpoint", "llm"] = "embedded"
    model: str | None = None
    base_url: str | None = None
    api_key_env: str | None = None
    batch_size: int = Field(32, ge=1)  # passages of one call, or of one pass of a local model
    max_tokens: int = Field(512, ge=8)  # of a question and a passage, for local models
    timeout_s: float = Field(60.0, gt=0)
    retries: int = Field(6, ge=0)

    @model_validator(mode="after")
    def _complete(self) -> "RerankSettings":
        if self.backend in ("torch", "endpoint") and not self.model:
            raise ValueError(f"backend {self.backend!r} needs a `model`")
        if self.backend == "endpoint" and not self.base_url:
            raise ValueError("backend 'endpoint' needs a `base_url`, for example https://api.cohere.com/v2")
        return self


class SparkSettings(Section):
    """`partitions` is both the parallelism of reading and the shuffle width. Nothing here changes what an index holds.

    `session`: a stage is a Python program that starts its own JVM; `spark-submit`: by that command, whose driver runs
    here (`client`) or in the cluster (`cluster`; YARN and Kubernetes).
    """

    master: str = "local[2]"
    submit: Literal["session", "spark-submit"] = "session"
    deploy_mode: Literal["client", "cluster"] = "client"
    partitions: int = Field(8, ge=1)
    driver_memory: str = "1g"
    executor_memory: str = "1g"  # of the JVM; Python's workers come on top
    executor_overhead: str | None = None  # outside the JVM, on YARN and Kubernetes; by default what Python may take
    executor_cores: int | None = Field(None, ge=1)
    executors: int | None = Field(None, ge=1)  # by default what the cluster gives
    executor_wait_s: float = Field(120.0, gt=0)  # for the first executor; then the run fails
    python: str | None = None  # the workers' interpreter; by default that of `archives`, else the driver's path
    archives: tuple[str, ...] = ()  # packed environments, URI#name; each worker unpacks them as ./name
    py_files: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()  # Maven coordinates, beside `graphframes` where that is needed
    env: tuple[str, ...] = ()  # names of the driver's variables that executors get, such as AWS_ACCESS_KEY_ID
    auth_secret_env: str | None = None  # the variable that holds spark.authenticate.secret; what is in `conf` is stored
    driver_host: str | None = None  # by default the address of this host from which the master is reached
    program: str | None = None  # cluster mode: where the image has corpusmill_jobs/stage.py
    pair_bound: int = Field(20_000_000, ge=0)  # edges that scipy takes on the driver; more go through GraphFrames
    graphframes: str = "io.graphframes:graphframes-spark4_2.13:0.12.3"
    checkpoint_dir: str | None = None
    conf: dict[str, str] = {}

    @model_validator(mode="after")
    def _startable(self) -> "SparkSettings":
        if not self.is_local and not self.master.startswith(("spark://", "k8s://")) and self.master != "yarn":
            raise ValueError(
                f"master ({self.master}) must be local[N], spark://HOST:PORT, k8s://https://HOST:PORT or yarn"
            )
        if self.deploy_mode == "cluster" and self.submit != "spark-submit":
            raise ValueError("deploy_mode 'cluster' needs submit 'spark-submit'")
        if self.deploy_mode == "cluster" and (self.is_local or self.master.startswith("spark://")):
            raise ValueError(f"Spark runs no Python driver inside {self.master}; deploy_mode must be 'client'")
        for archive in self.archives:
            if not archive.rpartition("#")[0]:
                raise ValueError(f"archive {archive!r} must end in #NAME, the folder that it is unpacked to")
        return self

    @property
    def is_local(self) -> bool:
        """Whether driver and tasks are one process tree on this host."""
        return self.master == "local" or self.master.startswith("local[")

    @property
    def workers_python(self) -> str | None:
        """The interpreter that was chosen for the workers, if any was."""
        return self.python or (f"./{self.archives[0].rpartition('#')[2]}/bin/python" if self.archives else None)


class RaySettings(Section):
    """`address` empty: a local Ray is started and stopped; `auto`: this host's cluster; http(s)://HEAD:8265: each stage
    is a job there, with the variables of this host that `env` names. `builders` are the document-builder actors."""

    address: str | None = None
    env: tuple[str, ...] = ()
    builders: int = Field(1, ge=1)
    documents_in_flight: int = Field(64, ge=1)  # of one builder
    calls_in_flight: int = Field(16, ge=1)  # model calls, all builders together
    embedding_replicas: int = Field(1, ge=1)
    embedding_gpus: float = Field(0.0, ge=0)  # that each of them claims, for the torch embedder
    clustering_replicas: int = Field(1, ge=1)
    num_cpus: int | None = Field(None, ge=1)
    object_store_mb: int = Field(256, ge=80)
    batch_documents: int = Field(500, ge=1)
    segment_mb: int = Field(32, ge=1)
    segment_age_s: float = Field(60.0, gt=0)


class CacheSettings(Section):
    """The response cache: a synced local file at once, the store every `flush_s` seconds."""

    dir: str | None = None  # default: the user's cache folder
    flush_s: float = Field(5.0, gt=0)
    enabled: bool = True


class StoreSettings(Section):
    """Object storage access; credentials come from the usual AWS places."""

    endpoint_url: str | None = None
    region: str | None = None
    path_style: bool = True
    timeout_s: float = Field(30.0, gt=0)
    retries: int = Field(5, ge=0)


class RunSettings(Section):
    methods: tuple[str, ...] = ("flexstructrag",)
    max_failed_fraction: float = Field(0.05, ge=0, le=1)
    budget: float | None = Field(None, gt=0)  # currency units; the run stops cleanly and resumes
    max_calls: int | None = Field(None, gt=0)
    seed: int = 0
    log_level: Literal["debug", "info", "warning", "error"] = "info"


class VectorIndexSettings(Section):
    """FAISS by size: flat up to `flat_max` vectors, IVF up to `ivf_max`, IVF with 8-bit quantisation above."""

    flat_max: int = Field(50_000, ge=0)
    ivf_max: int = Field(1_000_000, ge=0)
    nprobe: int = Field(16, ge=1)
    train_max: int = Field(200_000, ge=256)


class QuerySettings(Section):
    method: str | None = None
    mode: str | None = None
    context_tokens: int = Field(4000, ge=100)
    passages: int = Field(5, ge=0)
    fill: bool = True  # fill the context with BM25 + dense passages after the method's own evidence


def _methods_section() -> type[BaseModel]:
    fields: dict[str, Any] = {attribute(name): (kind, kind()) for name, kind in method_settings_types().items()}
    return create_model("MethodsSettings", __base__=Section, **fields)


MethodsSettings = _methods_section()


class Settings(Section):
    """The whole tree. A method's own settings live under `methods.<name>`, typed by that method."""

    source: SourceSettings = SourceSettings()
    convert: ConvertSettings = ConvertSettings()
    chunk: ChunkSettings = ChunkSettings()
    models: ModelsSettings = ModelsSettings()
    embedder: EmbedderSettings = EmbedderSettings()
    rerank: RerankSettings = RerankSettings()
    methods: MethodsSettings = MethodsSettings()  # type: ignore[valid-type]
    vector_index: VectorIndexSettings = VectorIndexSettings()
    spark: SparkSettings = SparkSettings()
    ray: RaySettings = RaySettings()
    cache: CacheSettings = CacheSettings()
    store: StoreSettings = StoreSettings()
    run: RunSettings = RunSettings()
    query: QuerySettings = QuerySettings()

    def method(self, name: str) -> BaseModel:
        """The settings of one method, `methods.dense_rerank` for `dense-rerank`."""
        return getattr(self.methods, attribute(name))
