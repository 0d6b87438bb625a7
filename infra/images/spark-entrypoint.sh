#!/usr/bin/env bash
# First process of a container. Spark on Kubernetes starts its pods with the one argument `executor` and the rest in the
# environment, and a driver with `driver` and spark-submit's arguments; anything else is a command, run as it is.
set -euo pipefail

java_options() {
  local name
  for ((i = 0; ; i++)); do
    name=SPARK_JAVA_OPT_$i
    [ -n "${!name+set}" ] || return 0
    options+=("${!name}")
  done
}

case "${1:-}" in
  executor)
    options=()
    java_options
    classpath="${SPARK_CONF_DIR:-$SPARK_HOME/conf}:$SPARK_HOME/jars/*"
    [ -z "${SPARK_EXECUTOR_CLASSPATH:-}" ] || classpath="$SPARK_EXECUTOR_CLASSPATH:$classpath"
    command=(
      "$JAVA_HOME/bin/java" "${options[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" -cp "$classpath"
      org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend
      --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES"
      --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP"
      --resourceProfileId "${SPARK_RESOURCE_PROFILE_ID:-0}" --podName "$SPARK_EXECUTOR_POD_NAME"
    )
    ;;
  driver)
    shift
    command=(
      "$SPARK_HOME/bin/spark-submit" --deploy-mode client
      --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" "$@"
    )
    ;;
  *)
    command=("$@")
    ;;
esac
exec "${TINI:-/usr/bin/tini}" -s -- "${command[@]}"
