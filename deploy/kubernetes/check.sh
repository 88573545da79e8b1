#!/usr/bin/env bash
# check.sh [IMAGE]: applies the manifests to the cluster of kubectl's context, in a namespace of its
# own that is deleted at the end, whatever happens.
#
# Without IMAGE it asks the API server what it makes of every object, without running anything. With
# an image that has Millrace and /app/train.py it runs them: parameter servers become ready, one that
# is killed comes back under its name, and the workers' Job completes. Needs Kubernetes 1.28.
set -euo pipefail
cd "$(dirname "$0")"
image=${1:-}
patience=${MILLRACE_CHECK_SECONDS:-300}
space=millrace-check-$$
oldest=28

fail() {
  echo "check.sh: $*" >&2
  exit 1
}

command -v kubectl > /dev/null || fail "there is no kubectl"
context=$(kubectl config current-context) || fail "kubectl has no context"
echo "== context $context, namespace $space"
kubectl version || fail "the API server of $context does not answer"
# Older servers drop what they do not know, and the tasks would not know their numbers.
minor=$(kubectl version -o json | sed -n '/"serverVersion"/,$ s/.*"minor": "\([0-9]*\).*/\1/p' | head -n 1)
[ "${minor:-0}" -ge "$oldest" ] ||
  fail "the API server of $context is Kubernetes 1.${minor:-?}, expected 1.$oldest at least"

clean_up() {
  kubectl delete namespace "$space" --ignore-not-found --wait=false
}
trap clean_up EXIT
kubectl create namespace "$space"
kubectl() { command kubectl --namespace "$space" "$@"; }

files=(cluster.yaml ps.yaml workers.yaml)
if command kubectl get crd tfjobs.kubeflow.org > /dev/null 2>&1; then files+=(tfjob.yaml); fi
for file in "${files[@]}"; do
  echo "== $file, as the server understands it"
  kubectl apply --dry-run=server --validate=true -f "$file"
done
echo "== a wrong manifest"
if sed 's/replicas: 1/replicas: two/' ps.yaml | kubectl apply --dry-run=server -f - 2> /dev/null; then
  fail "a StatefulSet of \"two\" replicas was accepted"
fi
[ -n "$image" ] || { echo "== the manifests are in order; nothing was run"; exit 0; }

echo "== run with $image"
kubectl create secret generic millrace-token --from-literal=token="$(openssl rand -hex 32)"
for file in cluster.yaml ps.yaml workers.yaml; do
  sed "s|image: .*|image: $image|" "$file" | kubectl apply -f -
done
kubectl rollout status statefulset/millrace-ps --timeout="${patience}s"
before=$(kubectl get pod millrace-ps-0 -o 'jsonpath={.metadata.uid}')
kubectl delete pod millrace-ps-0 --grace-period=0 --force
kubectl rollout status statefulset/millrace-ps --timeout="${patience}s"
[ "$(kubectl get pod millrace-ps-0 -o 'jsonpath={.metadata.uid}')" != "$before" ] ||
  fail "the parameter server that was killed is there still"
kubectl wait --for=condition=complete "--timeout=${patience}s" job/millrace-worker || {
  kubectl get pods
  kubectl logs --all-containers --prefix --tail=50 -l app=millrace
  fail "the workers have not ended well in $patience s"
}
echo "== all is well"
