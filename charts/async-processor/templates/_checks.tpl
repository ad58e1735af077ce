{{/* What cannot work fails the install, with a sentence each. */}}
{{- define "async-processor.checks" -}}
{{- $config := .Values.config -}}
{{- $transport := $config.transport | default dict -}}
{{- $type := $transport.type | default "redis-sortedset" -}}
{{- $queues := include "async-processor.queues" . | fromJsonArray -}}
{{- if not $queues }}
{{- fail "config.transport.queues is empty: name at least one queue with its gateway, e.g. --set 'config.transport.queues[0].igw_base_url=http://gateway:80'" }}
{{- end }}
{{- range $index, $queue := $queues }}
{{- $entry := printf "entry %d of config.transport.%s (%s)" $index (ternary "topics" "queues" (eq $type "gcp-pubsub")) ($queue.queue_name | default $queue.subscriber_id | default "unnamed") }}
{{- if not $queue.igw_base_url }}
{{- fail (printf "%s has no igw_base_url: set it to the URL of the inference gateway" $entry) }}
{{- end }}
{{- if not (regexMatch "(?i)^https?://|\\$\\{" $queue.igw_base_url) }}
{{- fail (printf "%s has the igw_base_url %q: it must begin with http:// or https://" $entry $queue.igw_base_url) }}
{{- end }}
{{- end }}
{{- if and (eq $type "redis-sortedset") (not $transport.url) (not (include "async-processor.hasBroker" .)) }}
{{- fail "there is no broker: set broker.existingSecret to a Secret that holds the Redis URL, or broker.url, or config.transport.url" }}
{{- end }}
{{- if and .Values.broker.url .Values.broker.existingSecret }}
{{- fail "broker.url and broker.existingSecret are both set: the Redis URL can come from one of them only" }}
{{- end }}
{{- if and .Values.inference.apiKey .Values.inference.existingSecret }}
{{- fail "inference.apiKey and inference.existingSecret are both set: the key can come from one of them only" }}
{{- end }}
{{- if and .Values.hpa.enabled .Values.keda.enabled }}
{{- fail "hpa.enabled and keda.enabled are both set: only one of them can decide about the replicas" }}
{{- end }}
{{- if and .Values.keda.enabled (not (include "async-processor.kedaPrometheus" .)) }}
{{- fail "keda needs a Prometheus: set keda.prometheusURL or config.prometheus.url" }}
{{- end }}
{{- if and (contains "${" (toString (dig "drain_timeout" "" $config))) (not .Values.terminationGracePeriodSeconds) }}
{{- fail "config.drain_timeout comes from a variable, which the chart cannot read: set terminationGracePeriodSeconds to 15 s more than it" }}
{{- end }}
{{- end }}

{{/* Whether the pods get a REDIS_URL; extraEnvFrom may hold one, nobody can see. */}}
{{- define "async-processor.hasBroker" -}}
{{- $names := list -}}
{{- range .Values.extraEnv }}{{ $names = append $names .name }}{{ end -}}
{{- if or .Values.broker.url .Values.broker.existingSecret .Values.extraEnvFrom (has "REDIS_URL" $names) }}yes{{ end }}
{{- end }}

{{- define "async-processor.kedaPrometheus" -}}
{{- .Values.keda.prometheusURL | default (dig "prometheus" "url" "" .Values.config) }}
{{- end }}
