{{/*
Names do not depend on the release: a cluster has one guard, because it keeps
the webhook configurations "kubemoor". A second release fails at its first
cluster-wide object, which belongs to the first release.
*/}}

{{/* The image that the pods run. */}}
{{- define "kubemoor.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end -}}

{{/* "true" if a mode or a policy of the values needs the rights of the arbiter. */}}
{{- define "kubemoor.enforces" -}}
{{- $enforces := or .Values.rights.enforce .Values.rights.privileged (has .Values.edits (list "Revert" "Deny")) (eq .Values.drift "Repair") -}}
{{- range .Values.policies -}}
{{- if or (has .spec.edits (list "Revert" "Deny")) (eq (.spec.drift | default "") "Repair") -}}{{- $enforces = true -}}{{- end -}}
{{- end -}}
{{- if $enforces -}}true{{- end -}}
{{- end -}}

{{/* "true" if a mode or a policy of the values needs the rights of repairs. */}}
{{- define "kubemoor.repairs" -}}
{{- $repairs := or .Values.rights.enforce .Values.rights.privileged (eq .Values.drift "Repair") -}}
{{- range .Values.policies -}}
{{- if eq (.spec.drift | default "") "Repair" -}}{{- $repairs = true -}}{{- end -}}
{{- end -}}
{{- if $repairs -}}true{{- end -}}
{{- end -}}

{{/* "true" if the API server is to narrow what the guard may write. */}}
{{- define "kubemoor.admissionPolicies" -}}
{{- $known := .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy" -}}
{{- $wanted := or (eq .Values.rights.admissionPolicies "Always") (and (eq .Values.rights.admissionPolicies "Auto") $known) -}}
{{- if and $wanted (include "kubemoor.enforces" .) -}}true{{- end -}}
{{- end -}}

{{/* "true" if the API server is to keep others from changing the guard. */}}
{{- define "kubemoor.protectsGuard" -}}
{{- $known := .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy" -}}
{{- if or (eq .Values.rights.protectGuard "Always") (and (eq .Values.rights.protectGuard "Auto") $known) -}}true{{- end -}}
{{- end -}}

{{/* Rules for the listed custom resources of one scope. Takes a list of the context, the scope and the verbs. */}}
{{- define "kubemoor.customResources" -}}
{{- $scope := index . 1 -}}
{{- $verbs := index . 2 -}}
{{- range (index . 0).Values.rights.customResources }}
{{- if eq (.scope | default "Namespaced") $scope }}
- apiGroups: [{{ .apiGroup }}]
  resources: [{{ join ", " .resources }}]
  verbs: [{{ $verbs }}]
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The Secret of the serving certificate that others make; empty if the guard makes it. */}}
{{- define "kubemoor.certificateSecret" -}}
{{- with .Values.certificates -}}
{{- if eq .source "CertManager" -}}kubemoor-tls
{{- else if eq .source "Secret" -}}{{ required "certificates.existingSecret is needed for certificates.source Secret" .existingSecret }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The Secret that holds the list of notifiers; empty if there are none. */}}
{{- define "kubemoor.notifiersSecret" -}}
{{- with .Values.notifiers -}}
{{- if .existingSecret -}}{{ .existingSecret }}{{- else if .receivers -}}kubemoor-notifiers{{- end -}}
{{- end -}}
{{- end -}}

{{/* The security context of every pod. */}}
{{- define "kubemoor.podSecurityContext" -}}
runAsNonRoot: true
{{- with .Values.user }}
runAsUser: {{ . }}
runAsGroup: {{ . }}
fsGroup: {{ . }}
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* The security context of every container. */}}
{{- define "kubemoor.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* A pod that runs one command of the program and ends. Takes a list of the context and the arguments. */}}
{{- define "kubemoor.commandPod" -}}
{{- $arguments := index . 1 -}}
{{- with index . 0 -}}
serviceAccountName: kubemoor
restartPolicy: Never
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
{{- toYaml . | nindent 0 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
{{- toYaml . | nindent 0 }}
{{- end }}
securityContext:
  {{- include "kubemoor.podSecurityContext" . | nindent 2 }}
containers:
- name: kubemoor
  image: {{ include "kubemoor.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  args: {{ toJson $arguments }}
  resources:
    {{- toYaml .Values.resources | nindent 4 }}
  securityContext:
    {{- include "kubemoor.containerSecurityContext" . | nindent 4 }}
{{- end -}}
{{- end -}}

{{/* The binding of a ClusterRole to the guard's account in the whole cluster. Takes a list of the context and the role. */}}
{{- define "kubemoor.clusterBinding" -}}
{{- $role := index . 1 -}}
{{- with index . 0 -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ $role }}
  labels:
    app.kubernetes.io/name: kubemoor
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ $role }}
subjects:
- kind: ServiceAccount
  name: kubemoor
  namespace: {{ .Release.Namespace }}
{{- end -}}
{{- end -}}

{{/*
The bindings of a ClusterRole of namespaced kinds: in the guarded namespaces, or in the whole cluster if the values
name none. Takes a list of the context and the role.
*/}}
{{- define "kubemoor.bindings" -}}
{{- $context := index . 0 -}}
{{- $role := index . 1 -}}
{{- $home := $context.Release.Namespace -}}
{{- if $context.Values.namespaces -}}
{{- range $index, $namespace := sortAlpha (uniq $context.Values.namespaces) }}
{{- if $index }}
---
{{ end -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $role }}-guarded
  namespace: {{ $namespace }}
  labels:
    app.kubernetes.io/name: kubemoor
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ $role }}
subjects:
- kind: ServiceAccount
  name: kubemoor
  namespace: {{ $home }}
{{- end -}}
{{- else -}}
{{ include "kubemoor.clusterBinding" (list $context $role) }}
{{- end -}}
{{- end -}}
