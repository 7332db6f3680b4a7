{{- define "database.image" -}}
{{ .Values.image.name }}:{{ default .Chart.AppVersion .Values.image.version }}
{{- end }}
{{- define "database.port" -}}
{{ .Values.primary.port }}
{{- end }}
{{- define "database.memory" -}}
{{- if eq .Values.primary.resourcesPreset "small" }}256Mi{{ else }}1Gi{{ end -}}
{{- end }}
{{- define "database.secret" -}}
{{- if .Values.auth.existingSecret -}}{{ .Values.auth.existingSecret }}{{- else -}}{{ .Release.Name }}-auth{{- end -}}
{{- end }}
