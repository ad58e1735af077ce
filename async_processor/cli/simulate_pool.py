"""`async-processor simulate-pool`: a vLLM pool to try things on, without a GPU."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Annotated, Any

import msgspec
import typer

from async_processor.errors import AsyncProcessorError, ConfigurationError, Problem
from async_processor.lifecycle import SideTaskDied
from async_processor.sim.engine import EngineSettings
from async_processor.sim.faults import NO_FAULTS, Faults
from async_processor.sim.flow_control import Mode
from async_processor.sim.pool import SimulatedPool

_MODEL = "Batching model (vLLM's own option names)"
_SPEED = "Speed of the model"
_TROUBLE = "Trouble"
_DEFAULTS = EngineSettings()


def simulate_pool(
    pods: Annotated[int, typer.Option(min=1, help="How many pods.")] = 2,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The router's port; 0 takes any.")
    ] = 8000,
    pod_port_base: Annotated[
        int, typer.Option(min=0, max=65535, help="The first pod's port; 0 takes any.")
    ] = 8100,
    name: Annotated[str, typer.Option(help="The pool's name in the router's metrics.")] = "sim",
    model_name: Annotated[str, typer.Option(help="The name of the served model.")] = "sim",
    strict_model: Annotated[
        bool, typer.Option("--strict-model", help="Answer 404 to any other model's name.")
    ] = False,
    instant: Annotated[
        bool, typer.Option("--instant", help="No model: answer at once, for benchmarks.")
    ] = False,
    latency: Annotated[
        float | None, typer.Option(min=0, help="No model: answer after so many seconds.")
    ] = None,
    max_num_seqs: Annotated[
        int, typer.Option(help="Requests in one batch.", rich_help_panel=_MODEL)
    ] = _DEFAULTS.max_num_seqs,
    max_num_batched_tokens: Annotated[
        int, typer.Option(help="Tokens in one step.", rich_help_panel=_MODEL)
    ] = _DEFAULTS.max_num_batched_tokens,
    max_model_len: Annotated[
        int, typer.Option(help="Prompt and answer, in tokens.", rich_help_panel=_MODEL)
    ] = _DEFAULTS.max_model_len,
    block_size: Annotated[
        int, typer.Option(help="Tokens in a KV block.", rich_help_panel=_MODEL)
    ] = _DEFAULTS.block_size,
    num_gpu_blocks: Annotated[
        int,
        typer.Option(
            "--num-gpu-blocks-override",
            "--num-gpu-blocks",
            help="KV blocks of a pod.",
            rich_help_panel=_MODEL,
        ),
    ] = _DEFAULTS.num_gpu_blocks,
    max_num_queued_reqs: Annotated[
        int | None,
        typer.Option(help="Answer 503 over so many requests in flight.", rich_help_panel=_MODEL),
    ] = _DEFAULTS.max_num_queued_reqs,
    prefill_tokens_per_second: Annotated[
        float, typer.Option(help="How fast prompts are read.", rich_help_panel=_SPEED)
    ] = _DEFAULTS.prefill_tokens_per_second,
    step_seconds: Annotated[
        float, typer.Option(help="Time of a decode step.", rich_help_panel=_SPEED)
    ] = _DEFAULTS.step_seconds,
    step_seconds_per_sequence: Annotated[
        float, typer.Option(help="More of it for each request.", rich_help_panel=_SPEED)
    ] = _DEFAULTS.step_seconds_per_sequence,
    flow_control: Annotated[
        Mode,
        typer.Option(
            help="A saturated router passes calls on, answers 429, or holds them back.",
            rich_help_panel=_TROUBLE,
        ),
    ] = Mode.OFF,
    retry_after: Annotated[
        float,
        typer.Option(min=0, help="Seconds, in the router's 429.", rich_help_panel=_TROUBLE),
    ] = 1.0,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help=f"A fault at every pod; may be repeated. Names: "
            f"{', '.join(NO_FAULTS.__struct_fields__)}.",
            rich_help_panel=_TROUBLE,
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Makes the faults repeatable.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the URLs as one JSON object.")
    ] = False,
) -> None:
    """Serve a simulated vLLM pool: pods, and a router before them, with their metrics.

    Faults are switched at runtime with POST /faults; GET /ledger counts the calls.

    Example: async-processor simulate-pool --pods 2 --max-num-seqs 4 --fault error=0.1
    """
    pool = SimulatedPool(
        pods=pods,
        latency=0.0 if instant else latency,
        engine=_engine(
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            max_model_len=max_model_len,
            block_size=block_size,
            num_gpu_blocks=num_gpu_blocks,
            max_num_queued_reqs=max_num_queued_reqs,
            prefill_tokens_per_second=prefill_tokens_per_second,
            step_seconds=step_seconds,
            step_seconds_per_sequence=step_seconds_per_sequence,
        ),
        name=name,
        model_name=model_name,
        strict_model=strict_model,
        faults=_faults(fault or ()),
        flow_control=flow_control,
        retry_after=retry_after,
        host=host,
        port=port,
        pod_port_base=pod_port_base,
        seed=seed,
    )
    _run(_serve(pool, as_json=as_json))


def _engine(**numbers: Any) -> EngineSettings:
    try:
        return EngineSettings(**numbers)
    except ValueError as error:
        raise ConfigurationError([Problem(path="simulate-pool", message=str(error))]) from None


def _faults(switches: Sequence[str]) -> Faults:
    """Read NAME=VALUE pairs; raises ConfigurationError."""
    values = dict(_pair(switch) for switch in switches)
    try:
        return msgspec.convert(values, Faults, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigurationError([Problem(path="--fault", message=str(error))]) from None


def _pair(switch: str) -> tuple[str, str]:
    name, separator, value = switch.partition("=")
    if not separator:
        raise ConfigurationError(
            [Problem(path="--fault", message=f"{switch!r} is not of the form NAME=VALUE")]
        )
    return name.strip().replace("-", "_"), value.strip()


def _run(work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=_fast_loop()) as runner:
        runner.run(work)


def _fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's where it exists; None means asyncio's own."""
    try:
        from uvloop import new_event_loop
    except ImportError:
        return None
    return new_event_loop


async def _serve(pool: SimulatedPool, *, as_json: bool) -> None:
    """Run the pool until SIGINT or SIGTERM, both of which are the ordinary end."""
    stopped = _stop_signal()
    try:
        await pool.start()
    except OSError as error:
        raise AsyncProcessorError(
            f"cannot listen: {error.strerror}; choose --port and --pod-port-base, 0 for any"
        ) from error
    try:
        _announce(pool, as_json=as_json)
        await _first_of(stopped, pool.failure())
    finally:
        await pool.stop()


def _stop_signal() -> asyncio.Future[None]:
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[None] = loop.create_future()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _resolve, stopped)
    return stopped


def _resolve(stopped: asyncio.Future[None]) -> None:
    if not stopped.done():
        stopped.set_result(None)


async def _first_of(
    stopped: asyncio.Future[None], failure: Coroutine[Any, Any, SideTaskDied]
) -> None:
    """Return at the signal; raises what broke the simulation."""
    broken = asyncio.ensure_future(failure)
    await asyncio.wait((stopped, broken), return_when=asyncio.FIRST_COMPLETED)
    if broken.done():
        raise broken.result()
    broken.cancel()


def _announce(pool: SimulatedPool, *, as_json: bool) -> None:
    if as_json:
        urls = {
            "url": pool.url,
            "metrics_url": pool.metrics_url,
            "pod_urls": pool.pod_urls,
            "pod_metrics_urls": pool.pod_metrics_urls,
        }
        typer.echo(msgspec.json.encode(urls))
    else:
        typer.echo(f"router  {pool.url}  (also /metrics, /ledger, /faults)")
        for pod, url in zip(pool.pods, pool.pod_urls, strict=True):
            typer.echo(f"{pod.name:<7} {url}")
    sys.stdout.flush()
