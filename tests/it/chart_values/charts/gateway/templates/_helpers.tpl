{{- define "gateway.fullname" -}}
{{- printf "%s-%s" .Release.Name (.Values.nameOverride | default .Chart.Name) | trunc 63 -}}
{{- end -}}
{{- define "gateway.images.image" -}}
{{- $registry := .global.imageRegistry | default .imageRoot.registry -}}
{{- printf "%s/%s:%s" $registry .imageRoot.repository .imageRoot.tag -}}
{{- end -}}
{{- define "gateway.tplvalues.render" -}}
{{- if typeIs "string" .value -}}
{{- tpl .value .context -}}
{{- else -}}
{{- tpl (toYaml .value) .context -}}
{{- end -}}
{{- end -}}
{{- define "gateway.image" -}}
{{ include "gateway.images.image" (dict "imageRoot" .Values.image "global" .Values.global) }}
{{- end -}}
{{- define "gateway.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- if .Values.commonLabels }}
{{ include "gateway.tplvalues.render" (dict "value" .Values.commonLabels "context" $) }}
{{- end }}
{{- end -}}
