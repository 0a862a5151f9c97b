"""`prefixgate epp`: the endpoint picker for gateways that are built on Envoy."""

from typing import Annotated

import typer

from gateway.app import STARTUP_ERRORS
from gateway.checking import check_start
from gateway.command_line.refusals import NOT_STARTED
from gateway.config import ConfigInvalid, process_environment
from gateway.log_lines import set_up_logging
from gateway.terminal import ConfigFile, need_backends, read_config, refused


def epp(
    backend: Annotated[list[str] | None, typer.Option(help="Base URL of a model server; repeat for each.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to bind for the pages over HTTP.")] = None,
    port: Annotated[int | None, typer.Option(help="Their port; 0 takes a free one.")] = None,
    grpc_port: Annotated[int | None, typer.Option(help="Port of gRPC; 0 takes a free one.")] = None,
    tls: Annotated[str | None, typer.Option(help="self_signed, files or off.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Say why it does not start as one line of JSON.")] = False,
    config: ConfigFile = None,
) -> None:
    """Run the endpoint picker, which gateways built on Envoy ask by ext-proc where a request is to go.

    Exit 2 where the configuration cannot be used, 3 where it could not start or a part of it failed.
    """
    flags: dict[str, object] = {
        "backends": [{"url": url} for url in backend] if backend else None,
        "listen.host": host,
        "listen.port": port,
        "epp.port": grpc_port,
        "epp.tls": tls,
    }
    settings = read_config(config, flags)
    need_backends(settings)
    try:
        check_start(settings, process_environment())
        try:
            from gateway.epp.command import serve_epp  # noqa: PLC0415 - the extra `epp` brings what it needs
        except ImportError:
            raise ConfigInvalid("prefixgate epp needs the extra `epp`: pip install '.[epp]' in a checkout") from None
        set_up_logging(settings.log_level)
        served = serve_epp(settings, process_environment())
    except STARTUP_ERRORS as error:
        raise refused(error) from None
    if not served:
        raise typer.Exit(NOT_STARTED)
