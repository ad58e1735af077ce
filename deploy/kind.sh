#!/usr/bin/env bash
# Shows the daemon in a cluster on this machine: kind, a Valkey, a simulated pool, a first request.
#
#   deploy/kind.sh          needs docker, kind and kubectl
#   deploy/kind.sh delete
set -euo pipefail
cd "$(dirname "$0")/.."
cluster=async-processor
context=(--context "kind-$cluster" --namespace async-processor)

if [[ ${1:-} == delete ]]; then
  exec kind delete cluster --name "$cluster"
fi

kind get clusters | grep -qx "$cluster" || kind create cluster --name "$cluster" --wait 120s
docker build -f deploy/Dockerfile -t async-processor:kind .
kind load docker-image async-processor:kind --name "$cluster"

kubectl --context "kind-$cluster" apply -k deploy/kustomize/overlays/kind
for name in valkey pool async-processor; do
  kubectl "${context[@]}" rollout status "deployment/$name" --timeout 180s
done

echo '{"model": "sim", "prompt": "Say hello", "max_tokens": 8}' |
  kubectl "${context[@]}" exec -i deployment/async-processor -- \
    async-processor submit --deadline 1m --wait
kubectl "${context[@]}" exec deployment/async-processor -- \
  async-processor status --daemon http://127.0.0.1:8081
