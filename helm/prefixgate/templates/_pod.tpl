{{/* The pod of a gateway or of an endpoint picker: (dict "root" . "part" "gateway" "command" "serve" "resources" R "config" TEXT). */}}
{{- define "prefixgate.pod" -}}
{{- $root := .root -}}
{{- $values := .root.Values -}}
{{- $files := include "prefixgate.secretFiles" $root | fromJsonArray -}}
{{- $secret := include "prefixgate.secretName" $root -}}
metadata:
  labels:
    {{- with $values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- include "prefixgate.partSelector" (list $root .part) | nindent 4 }}
  annotations:
    checksum/config: {{ sha256sum .config }}
    {{- with $values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "prefixgate.serviceAccountName" $root | quote }}
  automountServiceAccountToken: {{ not (empty (dig "discovery" "kubernetes" list $values.config)) }}
  # A Service called prefixgate would otherwise set PREFIXGATE_PORT and others, which are no keys of the configuration.
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ include "prefixgate.terminationGracePeriodSeconds" $root }}
  securityContext:
    {{- toYaml $values.podSecurityContext | nindent 4 }}
  {{- with include "prefixgate.pullSecrets" $root | trim }}{{ . | nindent 2 }}{{ end }}
  {{- with include "prefixgate.placing" $values | trim }}{{ . | nindent 2 }}{{ end }}
  {{- if $values.topologySpread.enabled }}
  topologySpreadConstraints:
    {{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
    - maxSkew: 1
      topologyKey: {{ . }}
      whenUnsatisfiable: {{ $values.topologySpread.whenUnsatisfiable }}
      labelSelector:
        matchLabels:
          {{- include "prefixgate.partSelector" (list $root $.part) | nindent 10 }}
      {{- if ne $.state "own" }}
      matchLabelKeys: [pod-template-hash]
      {{- end }}
    {{- end }}
  {{- end }}
  containers:
    - name: {{ .part }}
      image: {{ include "prefixgate.image" (list $values.image $root.Chart.AppVersion) | quote }}
      imagePullPolicy: {{ $values.image.pullPolicy }}
      command: [prefixgate]
      args: [{{ .command }}, -c, /etc/prefixgate/prefixgate.yaml]
      workingDir: /var/lib/prefixgate
      securityContext:
        {{- include "prefixgate.containerSecurity" $root | nindent 8 }}
      ports:
        - {name: http, containerPort: {{ include "prefixgate.port" $root }}, protocol: TCP}
        {{- with .grpcPort }}
        - {name: grpc, containerPort: {{ . }}, protocol: TCP}
        {{- end }}
      env:
        - {name: TMPDIR, value: /tmp}
        {{- with include "prefixgate.secretVariables" (list $root $secret (dict "redis-url" "PREFIXGATE_INDEX__REDIS_URL" "redis-password" "REDIS_PASSWORD" "postgres-url" "PREFIXGATE_LEDGER__URL" "postgres-password" "POSTGRES_PASSWORD")) | trim }}{{ . | nindent 8 }}{{ end }}
        {{- with $values.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      startupProbe:
        httpGet: {path: /health, port: http}
        periodSeconds: 2
        timeoutSeconds: 3
        failureThreshold: {{ div (add (int64 $values.startupSeconds) 1) 2 }}
      livenessProbe:
        httpGet: {path: /health, port: http}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      readinessProbe:
        httpGet: {path: /ready, port: http}
        periodSeconds: 3
        timeoutSeconds: 3
        failureThreshold: 2
      resources:
        {{- toYaml .resources | nindent 8 }}
      volumeMounts:
        - {name: config, mountPath: /etc/prefixgate, readOnly: true}
        - {name: state, mountPath: /var/lib/prefixgate}
        - {name: tmp, mountPath: /tmp}
        {{- if $files }}
        - {name: secrets, mountPath: /run/secrets/prefixgate, readOnly: true}
        {{- end }}
        {{- with $values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - name: config
      configMap: {name: {{ .configMap | quote }}}
    {{- if eq .state "claim" }}
    - name: state
      persistentVolumeClaim:
        claimName: {{ default (include "prefixgate.fullname" $root) $values.persistence.existingClaim | quote }}
    {{- else if eq .state "empty" }}
    - name: state
      emptyDir: {}
    {{- end }}
    - name: tmp
      emptyDir: {}
    {{- if $files }}
    - name: secrets
      secret:
        secretName: {{ $secret | quote }}
        defaultMode: 0440
        items:
          {{- range $files }}
          - {key: {{ . }}, path: {{ . }}}
          {{- end }}
    {{- end }}
    {{- with $values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{/* A claim for values like `persistence`. */}}
{{- define "prefixgate.claimSpec" -}}
accessModes: [ReadWriteOnce]
{{- with .storageClass }}
storageClassName: {{ . | quote }}
{{- end }}
resources:
  requests: {storage: {{ .size | quote }}}
{{- end -}}
