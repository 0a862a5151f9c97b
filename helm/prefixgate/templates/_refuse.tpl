{{/* What cannot work is refused before anything is changed, with what to do. */}}
{{- define "prefixgate.refuse" -}}
{{- include "prefixgate.refuseNames" . -}}
{{- include "prefixgate.refuseStores" . -}}
{{- include "prefixgate.refusePasswords" . -}}
{{- include "prefixgate.refuseSizes" . -}}
{{- if eq (int64 (include "prefixgate.port" .)) 0 -}}
{{- fail "config.listen.port is 0: a Service needs a port that is known" -}}
{{- end -}}
{{- if hasKey .Values.files "prefixgate.yaml" -}}
{{- fail "files has a prefixgate.yaml: that is made of config" -}}
{{- end -}}
{{- with .Values.autoscaling -}}
{{- if .enabled -}}
{{- if gt (int64 .minReplicas) (int64 .maxReplicas) -}}
{{- fail "autoscaling.minReplicas is more than autoscaling.maxReplicas" -}}
{{- end -}}
{{- if not (or .cpuPercent .inFlightPerPod .metrics) -}}
{{- fail "autoscaling needs something to go by: set autoscaling.cpuPercent, autoscaling.inFlightPerPod or autoscaling.metrics" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.monitoring.podMonitor.enabled .Values.monitoring.serviceMonitor.enabled -}}
{{- fail "monitoring.podMonitor and monitoring.serviceMonitor would count everything twice: choose one" -}}
{{- end -}}
{{- if and .Values.epp.inferencePool.enabled (not .Values.epp.enabled) -}}
{{- fail "epp.inferencePool names the endpoint picker: set epp.enabled" -}}
{{- end -}}
{{- if and .Values.epp.inferencePool.enabled (not .Values.epp.inferencePool.matchLabels) -}}
{{- fail "epp.inferencePool chooses engines by their pods' labels: set epp.inferencePool.matchLabels" -}}
{{- end -}}
{{- end -}}

{{- define "prefixgate.refuseNames" -}}
{{- if regexMatch "^[0-9]" (include "prefixgate.fullname" .) -}}
{{- fail (printf "a Service is called by a name that begins with a letter, and %s does not: set fullnameOverride" (include "prefixgate.fullname" .)) -}}
{{- end -}}
{{- if regexMatch "-$" (include "prefixgate.fullname" .) -}}
{{- fail "the names of nameOverride and fullnameOverride end with a letter or a digit" -}}
{{- end -}}
{{- end -}}

{{/* Replicas that do not share a ledger and an index would each be a gateway of its own. */}}
{{- define "prefixgate.refuseStores" -}}
{{- $data := include "prefixgate.secretData" . | fromJson -}}
{{- $several := or .Values.autoscaling.enabled (gt (int64 .Values.replicas) 1) -}}
{{- if .Values.epp.enabled -}}
{{- $several = gt (add (int64 .Values.replicas) (int64 .Values.epp.replicas)) 1 -}}
{{- end -}}
{{- if and $several (not (include "prefixgate.sharesLedger" .)) -}}
{{- fail "several replicas need one ledger: set secrets.postgresUrl, config.ledger.url, postgres.enabled, or postgres-url in secrets.existing.keys" -}}
{{- end -}}
{{- if and $several (not (include "prefixgate.sharesIndex" .)) -}}
{{- fail "several replicas share index and limits: set valkey.enabled, secrets.redisUrl, config.index.redis_url, or redis-url in secrets.existing.keys" -}}
{{- end -}}
{{- if and $several .Values.persistence.enabled .Values.persistence.existingClaim -}}
{{- fail "persistence.existingClaim is a volume of one pod: with several replicas leave it empty, then each has its own" -}}
{{- end -}}
{{- if and .Values.valkey.enabled (or (hasKey $data "redis-url") (dig "index" "redis_url" "" .Values.config)) -}}
{{- fail "valkey.enabled and the URL of another Redis: choose one" -}}
{{- end -}}
{{- if and .Values.postgres.enabled (or (hasKey $data "postgres-url") (dig "ledger" "url" "" .Values.config)) -}}
{{- fail "postgres.enabled and the URL of another PostgreSQL: choose one" -}}
{{- end -}}
{{- if and .Values.postgres.enabled (not (hasKey $data "postgres-password")) -}}
{{- fail "postgres.enabled needs a password: set secrets.postgresPassword, or postgres-password in secrets.existing.keys" -}}
{{- end -}}
{{- end -}}

{{/* Beyond its memory a Valkey refuses writes, and the index is not told what engines hold. */}}
{{- define "prefixgate.refuseSizes" -}}
{{- if .Values.valkey.enabled -}}
{{- $number := regexFind "^[0-9]+" .Values.valkey.maxMemory | int64 -}}
{{- $unit := get (dict "" 1 "kb" 1024 "mb" 1048576 "gb" 1073741824) (regexFind "[a-z]*$" .Values.valkey.maxMemory) | int64 -}}
{{- $index := dig "index" "max_bytes" 3221225472 .Values.config | int64 -}}
{{- if le (mul $number $unit) $index -}}
{{- fail (printf "valkey.maxMemory is %s, and the index in it may take %d bytes: give it more, or set config.index.max_bytes to less" .Values.valkey.maxMemory $index) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A ConfigMap is no place for a secret. */}}
{{- define "prefixgate.refusePasswords" -}}
{{- range list (list "index" "redis_url" "secrets.redisUrl") (list "ledger" "url" "secrets.postgresUrl") -}}
{{- $place := . -}}
{{- range $config, $tree := dict "config" $.Values.config "epp.config" $.Values.epp.config -}}
{{- $url := dig (index $place 0) (index $place 1) "" $tree | default "" | toString -}}
{{- if regexMatch "://[^/@?]*:[^/@?]+@" $url -}}
{{- fail (printf "%s.%s.%s has a password, and a ConfigMap is no place for it: set %s" $config (index $place 0) (index $place 1) (index $place 2)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
