"""`metaop serve` as a process: two models, the end by a signal, mistakes."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

import metaop
from metaop.__main__ import main
from tests.serving.conftest import body, floats

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(metaop.__file__).parents[1])}


def refuses(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), 60).close()
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:
        # The server stopped listening while this connection waited to be accepted.
        return False
    return False


def test_two_models_and_the_end_by_sigterm(programs: Path) -> None:
    """A request that has begun to arrive is answered; then the process ends with status 0."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "metaop", "serve", str(programs / "mlp.mo")),
            *(f"other:3={programs / 'table.mo'}", "--port", "0", "--max-batch", "4"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    try:
        assert process.stdout is not None
        match = re.fullmatch(
            r"metaop serve: mlp, other at http://(127\.0\.0\.1):(\d+)\n", process.stdout.readline()
        )
        assert match
        host, port = match[1], int(match[2])
        text = json.dumps(body(floats(2, 4))).encode()
        head = f"POST /v2/models/mlp/infer HTTP/1.1\r\nHost: a\r\nContent-Length: {len(text)}"
        with httpx.Client(base_url=f"http://{host}:{port}", timeout=300) as client:
            assert client.get("/v2/models/other").json()["versions"] == ["3"]
            with socket.create_connection((host, port), 60) as connection:
                connection.sendall(head.encode() + b"\r\n\r\n" + text[:20])
                while "metaop_requests_held 1.0" not in client.get("/metrics").text:
                    pass
                process.send_signal(signal.SIGTERM)
                while not refuses(host, port):
                    pass
                connection.sendall(text[20:])
                with connection.makefile("rb") as answer:
                    assert b" 200 " in answer.readline()
                    assert b'"shape": [2, 3]' in answer.read()
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0 and errors == ""
    finally:
        process.kill()
        process.wait()


def test_mistakes_are_told(
    programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", str(tmp_path / "none.mo")]) == 1
    assert "there is no file" in capsys.readouterr().err
    damaged = tmp_path / "damaged.mo"
    damaged.write_bytes(b"no program")
    assert main(["serve", str(damaged)]) == 1
    assert "version 1 of 'damaged': cannot load" in capsys.readouterr().err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["serve", str(programs / "mean.mo"), "--port", port]) == 1
    assert "Address already in use" in capsys.readouterr().err
    for option, value in (("--max-batch", "0"), ("--max-delay-ms", "nan"), ("--port", "-1")):
        with pytest.raises(SystemExit):
            main(["serve", str(programs / "mean.mo"), option, value])


@pytest.mark.parametrize("package", ["starlette", "uvicorn", "prometheus_client"])
def test_a_missing_package_is_named(
    programs: Path,
    package: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in list(sys.modules):
        if name.startswith("metaop.serving.") and name != "metaop.serving.command":
            monkeypatch.delitem(sys.modules, name)
        if name == package or name.startswith(package + "."):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path_importer_cache", {})
    monkeypatch.setitem(sys.modules, package, None)  # type: ignore[arg-type]
    monkeypatch.delattr("metaop.serving.server")
    assert main(["serve", str(programs / "mlp.mo")]) == 1
    error = capsys.readouterr().err
    assert f"needs the package {package}, which is not installed" in error
    assert "pip install 'metaop[serve]'" in error
