{{/* Names, labels, and the list of services. */}}

{{- define "penstock.fullname" -}}
{{- $name := .Values.fullnameOverride | default (ternary .Release.Name (printf "%s-penstock" .Release.Name) (contains "penstock" .Release.Name)) -}}
{{- $name | trunc 30 | trimSuffix "-" -}}
{{- end }}

{{/* The labels that select all pods of Penstock in this release. */}}
{{- define "penstock.selector" -}}
app.kubernetes.io/name: penstock
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The labels of each object. */}}
{{- define "penstock.labels" -}}
{{ include "penstock.selector" . }}
app.kubernetes.io/part-of: penstock
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/*
The services that run, as {"services": [...]}. A service with `zonal` runs in each zone. One with `kafka` serves clients,
and is a StatefulSet: its pods have addresses of their own, which they advertise.
*/}}
{{- define "penstock.services" -}}
{{- $services := list -}}
{{- if eq .Values.shape "agents" -}}
{{- $services = append $services (dict "name" "agent" "zonal" true "kafka" true "store" true) -}}
{{- else -}}
{{- $services = append $services (dict "name" "gateway" "zonal" true "kafka" true "store" true) -}}
{{- $services = append $services (dict "name" "flusher" "zonal" true "kafka" false "store" true) -}}
{{- $services = append $services (dict "name" "cacher" "zonal" true "kafka" false "store" true) -}}
{{- end -}}
{{- $services = append $services (dict "name" "sequencer" "zonal" true "kafka" false "store" true) -}}
{{- range list "compactor" "janitor" "console" -}}
{{- if (get $.Values .).enabled -}}
{{- $services = append $services (dict "name" . "zonal" false "kafka" false "store" (ne . "console")) -}}
{{- end -}}
{{- end -}}
{{- dict "services" $services | toJson -}}
{{- end }}

{{/* The name of a service in a zone; the arguments are root, service and zone. */}}
{{- define "penstock.workloadName" -}}
{{- $base := printf "%s-%s" (include "penstock.fullname" .root) .service.name -}}
{{- if .service.zonal }}{{ printf "%s-%s" $base .zone.name }}{{ else }}{{ $base }}{{ end -}}
{{- end }}

{{/* The labels that select the pods of a service, in a zone if there is one. */}}
{{- define "penstock.serviceSelector" -}}
{{ include "penstock.selector" .root }}
app.kubernetes.io/component: {{ .service.name }}
{{- if and .service.zonal .zone }}
penstock/zone: {{ .zone.name }}
{{- end }}
{{- end }}

{{- define "penstock.natsFullname" -}}
{{- .Values.nats.fullnameOverride | default (ternary .Release.Name (printf "%s-nats" .Release.Name) (contains "nats" .Release.Name)) | trunc 63 | trimSuffix "-" -}}
{{- end }}

{{- define "penstock.natsUrl" -}}
{{- if .Values.natsClient.url -}}
{{- .Values.natsClient.url -}}
{{- else if .Values.nats.enabled -}}
{{- printf "%s://%s:4222" (ternary "tls" "nats" .Values.natsClient.tls) (include "penstock.natsFullname" .) -}}
{{- else -}}
{{- fail "set natsClient.url to the addresses of your NATS servers, or nats.enabled=true" -}}
{{- end -}}
{{- end }}

{{- define "penstock.natsMonitorUrl" -}}
{{- if .Values.natsClient.monitorUrl -}}
{{- .Values.natsClient.monitorUrl -}}
{{- else if .Values.nats.enabled -}}
{{- $name := include "penstock.natsFullname" . -}}
{{- $urls := list -}}
{{- range $number := until (ternary (int .Values.nats.config.cluster.replicas) 1 .Values.nats.config.cluster.enabled) -}}
{{- $urls = append $urls (printf "http://%s-%d.%s-headless:8222" $name $number $name) -}}
{{- end -}}
{{- join "," $urls -}}
{{- end -}}
{{- end }}

{{/* The listeners as {"listeners": [...]}: names, ports and protocols. */}}
{{- define "penstock.listeners" -}}
{{- $listeners := list (dict "name" "INTERNAL" "port" 9092 "protocol" .Values.kafka.securityProtocol) -}}
{{- if .Values.kafka.external.enabled -}}
{{- $listeners = append $listeners (dict "name" "EXTERNAL" "port" 9093 "protocol" .Values.kafka.external.securityProtocol) -}}
{{- end -}}
{{- dict "listeners" $listeners | toJson -}}
{{- end }}

{{/* "true" if a listener has TLS. */}}
{{- define "penstock.hasTls" -}}
{{- range (include "penstock.listeners" . | fromJson).listeners }}{{ if hasSuffix "SSL" .protocol }}true{{ end }}{{ end -}}
{{- end }}

{{/* Errors in values that no schema can find. */}}
{{- define "penstock.check" -}}
{{- $values := .Values -}}
{{- if not $values.store.url }}{{ fail "set store.url to the address of the object store, such as s3://bucket/prefix?region=eu-central-1" }}{{ end -}}
{{- if regexMatch "(access_key|secret_key|account_key|password)=" $values.store.url }}{{ fail "store.url has a key: put AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY into the file credentials.env of each service's Secret" }}{{ end -}}
{{- if regexMatch "://[^/,]*@" $values.natsClient.url }}{{ fail "natsClient.url has a login: put PENSTOCK_NATS_USER and PENSTOCK_NATS_PASSWORD into the file credentials.env of each service's Secret" }}{{ end -}}
{{- range $values.extraEnv }}{{ if hasPrefix "PENSTOCK_" .name }}{{ fail (printf "extraEnv: %s is a setting; use the value of this chart, or settings" .name) }}{{ end }}{{ end -}}
{{- if and (not $values.credentials.enabled) (or $values.natsClient.tls $values.http.token $values.administrator.enabled) -}}
{{- fail "without credentials.enabled, set natsClient.tls, http.token and administrator.enabled to false, too" -}}
{{- end -}}
{{- if $values.nats.enabled -}}
{{- if ne $values.natsClient.tls $values.nats.config.nats.tls.enabled }}{{ fail "natsClient.tls and nats.config.nats.tls.enabled must be the same" }}{{ end -}}
{{- $servers := ternary (int $values.nats.config.cluster.replicas) 1 $values.nats.config.cluster.enabled -}}
{{- $copies := int ($values.sequencer.settings.journal_replicas | default 1) -}}
{{- if gt $copies $servers }}{{ fail (printf "sequencer.settings.journal_replicas is %d, but there are %d NATS servers" $copies $servers) }}{{ end -}}
{{- end -}}
{{- $clusters := list -}}
{{- range $cluster := $values.clusters -}}
{{- if has $cluster.name $clusters }}{{ fail (printf "clusters: %s is there twice" $cluster.name) }}{{ end -}}
{{- $clusters = append $clusters $cluster.name -}}
{{- end -}}
{{- if and $clusters (not (has $values.cluster $clusters)) -}}
{{- fail (printf "clusters: add one with the name %s, or set `cluster`, which the console and the administrator use, to one of them" $values.cluster) -}}
{{- end -}}
{{- $names := list -}}
{{- range $zone := $values.zones -}}
{{- if has $zone.name $names }}{{ fail (printf "two zones have the name %s" $zone.name) }}{{ end -}}
{{- $names = append $names $zone.name -}}
{{- if and $values.kafka.external.enabled (not $zone.externalHost) -}}
{{- fail (printf "kafka.external.enabled: set externalHost of the zone %s to the name by which clients reach its Service" $zone.name) -}}
{{- end -}}
{{- if and $values.kafka.external.enabled (eq $values.kafka.external.type "NodePort") (not $zone.nodePort) -}}
{{- fail (printf "kafka.external.type is NodePort: set nodePort of the zone %s" $zone.name) -}}
{{- end -}}
{{- end -}}
{{- if and $values.console.ingress.enabled (or (not $values.console.ingress.host) (not $values.console.ingress.tlsSecretName)) -}}
{{- fail "console.ingress.enabled: set console.ingress.host and console.ingress.tlsSecretName" -}}
{{- end -}}
{{- end }}
