{{/* Pods of services, with their variables. */}}

{{/* The text of a setting. Numbers have no exponent. */}}
{{- define "penstock.text" -}}
{{- if kindIs "string" . }}{{ . | quote }}{{ else }}{{ . | toJson | quote }}{{ end -}}
{{- end }}

{{/* The connection to NATS, the same for services and the administrator's Job. */}}
{{- define "penstock.natsEnv" -}}
- {name: PENSTOCK_CLUSTER, value: {{ .Values.cluster | quote }}}
- {name: PENSTOCK_NATS_URL, value: {{ include "penstock.natsUrl" . | quote }}}
{{- with .Values.credentials }}
{{- if .enabled }}
- {name: PENSTOCK_ENV_FILE, value: {{ printf "/run/credentials/%s" .keys.envFile | quote }}}
{{- end }}
{{- if $.Values.natsClient.tls }}
- {name: PENSTOCK_NATS_TLS_CA, value: {{ printf "/run/credentials/%s" .keys.natsCa | quote }}}
- {name: PENSTOCK_NATS_TLS_CERTIFICATE, value: {{ printf "/run/credentials/%s" .keys.natsCertificate | quote }}}
- {name: PENSTOCK_NATS_TLS_KEY, value: {{ printf "/run/credentials/%s" .keys.natsKey | quote }}}
{{- end }}
{{- end }}
{{- end }}

{{/* The listeners of a gateway or an agent. Its own address is the DNS name of its pod. */}}
{{- define "penstock.kafkaEnv" -}}
{{- $values := .root.Values -}}
{{- $listeners := list -}}
{{- $protocols := list -}}
{{- range (include "penstock.listeners" .root | fromJson).listeners -}}
{{- $listeners = append $listeners (printf "%s://0.0.0.0:%v" .name .port) -}}
{{- $protocols = append $protocols (printf "%s:%s" .name .protocol) -}}
{{- end -}}
{{- $own := printf "$(POD_NAME).%s.%s.svc.%s" (include "penstock.workloadName" .) .root.Release.Namespace $values.clusterDomain -}}
{{- $advertised := list (printf "INTERNAL://%s:9092" $own) -}}
{{- if $values.kafka.external.enabled -}}
{{- $port := .zone.externalPort | default (ternary .zone.nodePort $values.kafka.external.port (eq $values.kafka.external.type "NodePort")) -}}
{{- $advertised = append $advertised (printf "EXTERNAL://%s:%v" .zone.externalHost (int $port)) -}}
{{- end -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- {name: PENSTOCK_LISTENERS, value: {{ join "," $listeners | quote }}}
- {name: PENSTOCK_ADVERTISED_LISTENERS, value: {{ join "," $advertised | quote }}}
- {name: PENSTOCK_LISTENER_SECURITY_PROTOCOL_MAP, value: {{ join "," $protocols | quote }}}
{{- if include "penstock.hasTls" .root }}
- {name: PENSTOCK_SSL_KEYSTORE_CERTIFICATE_CHAIN, value: {{ printf "/run/kafka-tls/%s" $values.kafka.tls.certificateKey | quote }}}
- {name: PENSTOCK_SSL_KEYSTORE_KEY, value: {{ printf "/run/kafka-tls/%s" $values.kafka.tls.privateKeyKey | quote }}}
{{- end }}
{{- if and $values.credentials.enabled $values.credentials.keys.tokenKey }}
- {name: PENSTOCK_DELEGATION_TOKEN_SECRET_KEY_FILE, value: {{ printf "/run/credentials/%s" $values.credentials.keys.tokenKey | quote }}}
{{- end }}
{{- end }}

{{/* The variables that only the console has. */}}
{{- define "penstock.consoleEnv" -}}
- {name: PENSTOCK_LISTEN_HOST, value: "0.0.0.0"}
- {name: PENSTOCK_LISTEN_PORT, value: "8081"}
- {name: PENSTOCK_BOOTSTRAP, value: {{ printf "%s-kafka:9092" (include "penstock.fullname" .) | quote }}}
{{- if and .Values.credentials.enabled (ne .Values.kafka.securityProtocol "PLAINTEXT") }}
- {name: PENSTOCK_COMMAND_CONFIG, value: {{ printf "/run/credentials/%s" .Values.credentials.keys.clientProperties | quote }}}
{{- end }}
{{- if .Values.console.ingress.enabled }}
- {name: PENSTOCK_SECURE_COOKIES, value: "true"}
- {name: PENSTOCK_HOST_NAMES, value: {{ .Values.console.ingress.host | quote }}}
{{- end }}
{{- end }}

{{/* All variables of a service; the arguments are root, service and zone. */}}
{{- define "penstock.env" -}}
{{- $values := .root.Values -}}
{{- $own := get $values .service.name -}}
{{- $settings := mergeOverwrite (dict) $values.settings (default dict $own.settings) -}}
{{- if eq .service.name "agent" -}}
{{- $settings = mergeOverwrite (dict) $values.settings $values.cacher.settings $values.flusher.settings $values.gateway.settings -}}
{{- end -}}
{{ include "penstock.natsEnv" .root }}
{{- if and $values.clusters (ne .service.name "console") }}
- {name: PENSTOCK_CLUSTERS, value: "*"}
{{- end }}
- {name: PENSTOCK_ZONE, value: {{ .zone.name | quote }}}
{{- if .service.store }}
- {name: PENSTOCK_STORE_URL, value: {{ $values.store.url | quote }}}
{{- end }}
- {name: PENSTOCK_HTTP_HOST, value: "0.0.0.0"}
- {name: PENSTOCK_HTTP_PORT, value: "8080"}
{{- if $values.http.token }}
- {name: PENSTOCK_HTTP_TOKEN_FILE, value: {{ printf "/run/credentials/%s" $values.credentials.keys.httpToken | quote }}}
{{- end }}
- {name: PENSTOCK_DRAIN_DEADLINE_MS, value: {{ include "penstock.text" $values.drainDeadlineMs }}}
{{- if .service.kafka }}
{{ include "penstock.kafkaEnv" . }}
{{- else if eq .service.name "sequencer" }}
{{- with include "penstock.natsMonitorUrl" .root }}
- {name: PENSTOCK_NATS_MONITOR_URL, value: {{ . | quote }}}
{{- end }}
{{- else if eq .service.name "console" }}
{{ include "penstock.consoleEnv" .root }}
{{- else if eq .service.name "compactor" }}
- {name: SPARK_LOCAL_DIRS, value: /scratch}
- {name: TMPDIR, value: /scratch}
- {name: JAVA_TOOL_OPTIONS, value: -Djava.io.tmpdir=/scratch}
{{- end }}
{{- range $name, $value := $settings }}
- {name: PENSTOCK_{{ upper $name }}, value: {{ include "penstock.text" $value }}}
{{- end }}
{{- with $values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The security of each pod and of each container. */}}
{{- define "penstock.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "penstock.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "penstock.image" -}}
{{- $image := .root.Values.image -}}
{{- printf "%s/%s:%s" $image.repository .image (.tag | default $image.tag | default .root.Chart.AppVersion) -}}
{{- end }}

{{/* The labels and annotations of a pod; the arguments are root, service and zone. */}}
{{- define "penstock.podMetadata" -}}
{{- $pods := mergeOverwrite (dict) (deepCopy .root.Values.pods) (get .root.Values .service.name).pods -}}
labels:
  {{- include "penstock.serviceSelector" . | nindent 2 }}
  {{- with omit $pods.labels "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component" "penstock/zone" }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $pods.annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Probes. `/health` answers while the process lives, `/ready` while it can work. Neither needs the token. */}}
{{- define "penstock.probes" -}}
startupProbe:
  httpGet: {path: /health, port: http}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /health, port: http}
  periodSeconds: 10
  timeoutSeconds: 10
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /ready, port: http}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 2
{{- end }}

{{/* The ports of a service. */}}
{{- define "penstock.ports" -}}
- {name: http, containerPort: 8080}
{{- if .service.kafka }}
{{- range (include "penstock.listeners" .root | fromJson).listeners }}
- {name: {{ lower .name }}, containerPort: {{ .port }}}
{{- end }}
{{- else if eq .service.name "console" }}
- {name: pages, containerPort: 8081}
{{- end }}
{{- end }}

{{/* Where pods run; the arguments are root, service, zone and pods (the values). */}}
{{- define "penstock.placement" -}}
{{- with .zone.node }}
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
        - matchExpressions:
            - {key: topology.kubernetes.io/zone, operator: In, values: [{{ . | quote }}]}
{{- end }}
topologySpreadConstraints:
  {{- range ternary (list "kubernetes.io/hostname") (list "topology.kubernetes.io/zone" "kubernetes.io/hostname") (ne ($.zone.node | default "") "") }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: {{ $.root.Values.topologySpread.whenUnsatisfiable }}
    labelSelector:
      matchLabels:
        {{- include "penstock.serviceSelector" $ | nindent 8 }}
  {{- end }}
{{- with .pods.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .pods.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .pods.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- end }}

{{/* The spec of a pod; the arguments are root, service and zone. */}}
{{- define "penstock.podSpec" -}}
{{- $values := .root.Values -}}
{{- $own := get $values .service.name -}}
{{- $hasTls := and .service.kafka (include "penstock.hasTls" .root) -}}
{{- $serves := or .service.kafka (eq .service.name "console") -}}
{{- $isCompactor := eq .service.name "compactor" -}}
serviceAccountName: {{ include "penstock.fullname" .root }}-{{ .service.name }}
automountServiceAccountToken: {{ $own.serviceAccount.automountToken }}
# Variables such as PENSTOCK_NATS_PORT, which Kubernetes makes from Services, would be read as settings.
enableServiceLinks: false
# The wait before SIGTERM, the drain, and the steps after it.
terminationGracePeriodSeconds: {{ add (ternary (int $values.preStopSeconds) 0 $serves) (div (add (int64 $values.drainDeadlineMs) 999) 1000) 10 }}
securityContext:
  {{- include "penstock.podSecurity" . | nindent 2 }}
{{- with $values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - {name: {{ . | quote }}}
  {{- end }}
{{- end }}
containers:
  - name: {{ .service.name }}
    image: {{ include "penstock.image" (dict "root" .root "image" .service.name "tag" $own.imageTag) | quote }}
    imagePullPolicy: {{ $values.image.pullPolicy }}
    {{- if eq .service.name "agent" }}
    command: [python, -m, penstock.cli, agent]
    {{- end }}
    env:
      {{- include "penstock.env" . | nindent 6 }}
    ports:
      {{- include "penstock.ports" . | nindent 6 }}
    {{- include "penstock.probes" . | nindent 4 }}
    {{- if and $serves (gt (int $values.preStopSeconds) 0) }}
    lifecycle:
      preStop: {exec: {command: [sleep, {{ $values.preStopSeconds | toJson | quote }}]}}
    {{- end }}
    resources:
      {{- toYaml $own.resources | nindent 6 }}
    securityContext:
      {{- include "penstock.containerSecurity" . | nindent 6 }}
    {{- if or $values.credentials.enabled $hasTls $isCompactor }}
    volumeMounts:
      {{- if $values.credentials.enabled }}
      - {name: credentials, mountPath: /run/credentials, readOnly: true}
      {{- end }}
      {{- if $hasTls }}
      - {name: kafka-tls, mountPath: /run/kafka-tls, readOnly: true}
      {{- end }}
      {{- if $isCompactor }}
      - {name: scratch, mountPath: /scratch}
      {{- end }}
    {{- end }}
{{- if or $values.credentials.enabled $hasTls $isCompactor }}
volumes:
  {{- if $values.credentials.enabled }}
  - name: credentials
    secret: {secretName: {{ $own.secretName | quote }}, defaultMode: 0440}
  {{- end }}
  {{- if $hasTls }}
  - name: kafka-tls
    secret: {secretName: {{ $values.kafka.tls.secretName | quote }}, defaultMode: 0440}
  {{- end }}
  {{- if $isCompactor }}
  - name: scratch
    emptyDir: {sizeLimit: {{ $own.scratchSize | quote }}}
  {{- end }}
{{- end }}
{{ include "penstock.placement" (merge (dict "pods" (mergeOverwrite (dict) (deepCopy $values.pods) $own.pods)) .) }}
{{- end }}

{{/* The parts of a Job's pod that do not depend on its work. */}}
{{- define "penstock.jobPod" -}}
restartPolicy: OnFailure
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  {{- include "penstock.podSecurity" . | nindent 2 }}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - {name: {{ . | quote }}}
  {{- end }}
{{- end }}
{{- with .Values.pods.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.pods.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The same of its containers. */}}
{{- define "penstock.jobContainer" -}}
image: {{ include "penstock.image" (dict "root" . "image" "sequencer" "tag" .Values.sequencer.imageTag) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
resources:
  requests: {cpu: 50m, memory: 128Mi}
  limits: {memory: 256Mi}
securityContext:
  {{- include "penstock.containerSecurity" . | nindent 2 }}
{{- end }}
