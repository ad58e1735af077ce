{{/* Whole seconds, rounded up, of a duration as the configuration has them: 90, "90s", "1h30m". */}}
{{- define "async-processor.seconds" -}}
{{- $text := toString . | trim -}}
{{- $total := 0.0 -}}
{{- if regexMatch "^[0-9.]+(e\\+[0-9]+)?$" $text -}}
  {{- $total = float64 . -}}
{{- else -}}
  {{- $units := dict "ns" 1e-9 "us" 1e-6 "µs" 1e-6 "ms" 0.001 "s" 1.0 "m" 60.0 "h" 3600.0 -}}
  {{- range $part := regexFindAll "[0-9.]+(ns|us|µs|ms|s|m|h)" $text -1 -}}
    {{- $unit := regexFind "[a-zµ]+$" $part -}}
    {{- $total = addf $total (mulf (float64 (trimSuffix $unit $part)) (get $units $unit)) -}}
  {{- end -}}
{{- end -}}
{{- ceil $total | int64 }}
{{- end }}

{{/* The drain, 15 s for a broker that hangs, and a supervisor's 5 s to end what hangs even then. */}}
{{- define "async-processor.gracePeriod" -}}
{{- $drain := dig "drain_timeout" "2m" .Values.config -}}
{{- $after := ternary 15 20 (eq "1" (toString (dig "processes" 1 .Values.config))) -}}
{{- if .Values.terminationGracePeriodSeconds -}}
{{- int64 .Values.terminationGracePeriodSeconds }}
{{- else -}}
{{- add $after (include "async-processor.seconds" $drain | int64) }}
{{- end }}
{{- end }}
