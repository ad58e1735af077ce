"""The values of the Go implementation's chart: what becomes of them in the values of ours, besides
the daemon's configuration.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from async_processor.config.go_chart import TLS_FOLDER, at, renamed
from async_processor.config.go_documents import Notes
from async_processor.fields import without_password

_ALERTS: Final = {
    "highRetryRate": "AsyncProcessorHighRetryRate",
    "highDeadlineExceededRate": "AsyncProcessorHighDeadlineExceededRate",
    "lowSuccessRate": "AsyncProcessorLowSuccessRate",
    "highShedRate": "AsyncProcessorHighShedRate",
    "highSheddedRate": "AsyncProcessorHighShedRate",
}
_SAME: Final = {
    "resources": "resources",
    "securityContext": "securityContext",
    "imagePullSecrets": "imagePullSecrets",
    "affinity": "affinity",
    "podMonitor": "podMonitor",
    "modelServerMonitor": "modelServerMonitor",
}
_PROBES: Final = {kind: kind for kind in ("startupProbe", "livenessProbe", "readinessProbe")}
_TRACING: Final = {
    "endpoint": "OTEL_EXPORTER_OTLP_ENDPOINT",
    "insecure": "OTEL_EXPORTER_OTLP_INSECURE",
    "sampler": "OTEL_TRACES_SAMPLER",
    "samplerArg": "OTEL_TRACES_SAMPLER_ARG",
}
_OLD_SECRET: Final = "redis-creds"  # noqa: S105 - the name of one
_KNOWN: Final = frozenset({
    "affinity", "concurrency", "drainTimeout", "gcpPubSub", "grafana", "health", "igwBaseURL",
    "image", "imagePullPolicy", "imagePullSecrets", "logging", "messageQueueImpl", "metrics",
    "modelServerMonitor", "otel", "podMonitor", "prometheusCacheTTL", "prometheusRule",
    "prometheusURL", "redis", "requestMergePolicyConfig", "resources", "securityContext", "tls",
    "transformConfig", "transport", "transportConfig", "workerPools",
})  # fmt: skip
_NAMES: Final = frozenset({"ap", "nameOverride", "fullnameOverride", "serviceAccount"})


def chart_values(values: Mapping[str, Any], config: dict[str, Any], notes: Notes) -> dict[str, Any]:
    """Our chart's values but `config`, from which a URL with a password is taken out."""
    ap = values["ap"]
    found: dict[str, Any] = {key: values[key] for key in _NAMES - {"ap"} if at(values, key)}
    found |= renamed(ap, _SAME) | renamed(at(ap, "health"), _PROBES)
    sections = {
        **_broker(ap, config["transport"], notes),
        "image": renamed(ap, {"imagePullPolicy": "pullPolicy"}),
        "tls": _tls(ap),
        "prometheusRule": _alerts(at(ap, "prometheusRule") or {}),
        "grafanaDashboard": _dashboard(at(ap, "grafana", "dashboards") or {}),
    }
    sections["extraEnv"] = [*sections.get("extraEnv", []), *_tracing(at(ap, "otel") or {})]
    notes += _remarks(values, ap)
    return found | {key: value for key, value in sections.items() if value}


def _broker(ap: Mapping[str, Any], transport: dict[str, Any], notes: Notes) -> dict[str, Any]:
    """Where the Redis URL comes from."""
    if transport.get("type") != "redis-sortedset":
        return {}
    secret, redis = at(ap, "transportConfig", "urlSecret") or {}, at(ap, "redis") or {}
    url = at(secret, "url") or at(redis, "url") or _taken_out(transport)
    if url:
        notes.append("broker.url shows in `helm get values`: better name a Secret of your own")
        return {"broker": {"url": url}}
    if transport.get("url"):
        return {}
    if at(secret, "name"):
        return {"broker": {"existingSecret": secret["name"], "key": at(secret, "key") or "url"}}
    if at(redis, "host"):
        return _by_host(redis, notes)
    return {"broker": _old_secret(redis, notes)}


def _taken_out(transport: dict[str, Any]) -> str:
    """The transport's URL, if it has a password, which belongs into a Secret."""
    url = str(transport.get("url", ""))
    return str(transport.pop("url")) if without_password(url) != url else ""


def _old_secret(redis: Mapping[str, Any], notes: Notes) -> dict[str, str]:
    if not at(redis, "secretName"):
        notes.append(f"no Redis is named: taking the old chart's default, the Secret {_OLD_SECRET}")
    return {
        "existingSecret": at(redis, "secretName") or _OLD_SECRET,
        "key": at(redis, "secretKey") or "url",
    }


def _by_host(redis: Mapping[str, Any], notes: Notes) -> dict[str, Any]:
    """The oldest way: host and port, user and password from a Secret. Kubernetes fills in $(…)."""
    address, auth = f"{redis['host']}:{at(redis, 'port') or 6379}/0", at(redis, "auth") or {}
    if not at(auth, "enabled"):
        return {"broker": {"url": f"redis://{address}"}}
    notes.append("REDIS_URL is made of user and password: they must not need URL encoding")
    keys = {"REDIS_USERNAME": auth["usernameKey"], "REDIS_PASSWORD": auth["passwordKey"]}
    secrets = [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": auth["secretName"], "key": key}}}
        for name, key in keys.items()
    ]
    url = {"name": "REDIS_URL", "value": f"redis://$(REDIS_USERNAME):$(REDIS_PASSWORD)@{address}"}
    return {"extraEnv": [*secrets, url]}


def _tls(ap: Mapping[str, Any]) -> dict[str, str]:
    secret = at(ap, "tls", "secretName")
    return {"existingSecret": secret, "mountPath": TLS_FOLDER} if secret else {}


def _alerts(rule: Mapping[str, Any]) -> dict[str, Any]:
    found = renamed(rule, {"enabled": "enabled", "labels": "labels"})
    theirs = {
        _ALERTS[key]: value for key, value in (at(rule, "rules") or {}).items() if key in _ALERTS
    }
    changes = {
        name: renamed(each, {"threshold": "threshold", "for": "for"})
        for name, each in theirs.items()
    }
    disabled = [name for name, each in theirs.items() if at(each, "enabled") is False]
    found |= {"disabled": disabled} if disabled else {}
    overrides = {name: change for name, change in changes.items() if change}
    return found | ({"overrides": overrides} if overrides else {})


def _dashboard(dashboards: Mapping[str, Any]) -> dict[str, Any]:
    found = renamed(dashboards, {"enabled": "enabled"})
    if at(dashboards, "label"):
        found["labels"] = {dashboards["label"]: str(at(dashboards, "labelValue") or "1")}
    return found


def _tracing(otel: Mapping[str, Any]) -> list[dict[str, str]]:
    if not at(otel, "endpoint"):
        return []
    return [
        {"name": name, "value": str(value).lower() if isinstance(value, bool) else str(value)}
        for name, value in ((name, at(otel, key)) for key, name in _TRACING.items())
        if value is not None
    ]


def _remarks(values: Mapping[str, Any], ap: Mapping[str, Any]) -> Iterator[str]:
    """What somebody has to know of what is left out."""
    if at(ap, "image"):
        yield "ap.image is left out: it is the Go implementation's; set image.repository"
    if at(ap, "metrics", "secure"):
        yield "ap.metrics.secure is left out: config.server.bearer_token protects /metrics"
    if at(ap, "logging"):
        yield 'ap.logging is left out: extraArgs: ["-v=4"] logs more'
    if at(ap, "otel", "redisTracing"):
        yield "ap.otel.redisTracing is left out: Redis commands are not traced"
    unknown = [f"ap.{key}" for key in ap if key not in _KNOWN]
    unknown += [key for key in values if key not in _NAMES]
    yield from (f"{key} is left out: the chart did not know it either" for key in unknown)
