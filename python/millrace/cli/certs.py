"""`millrace certs`: an authority of one's own, and certificates for the tasks of a cluster."""

from __future__ import annotations

import ipaddress
import os
import re
import shutil
import subprocess
import tempfile
from typing import Any

from millrace.cli import command

_ABOUT = """\
Makes a small authority in FOLDER and, for each HOST, a folder FOLDER/HOST with
ca.pem, cert.pem and key.pem: what MILLRACE_CLUSTER_CERTS names on that machine, for
its tasks and for the programs that connect from there. Hosts are the names, or
addresses, that the cluster's addresses have. An authority that is there signs for
hosts that are new; certificates that are there stay. FOLDER/authority signs: keep it
to yourself.
"""

# A name of a host, which also becomes a folder's.
_NAME = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9-]{1,63}(?<!-))*")


def main(arguments: list[str]) -> int:
    """Runs the command; gives its exit code."""
    parser = command.Parser("certs", _ABOUT)
    parser.add_argument("folder", metavar="FOLDER")
    parser.add_argument("hosts", metavar="HOST", nargs="+")
    parser.add_argument("--days", type=int, default=365, help="how long they hold; 365 by default")
    return command.run(parser, _certs, arguments)


def _certs(options: Any) -> int:
    if not 1 <= options.days <= 36500:
        raise command.CommandError(f"expected 1 to 36500 days, got {options.days}")
    hosts = {host: _subject_name(host) for host in options.hosts}
    if shutil.which("openssl") is None:
        raise command.CommandError("needs the program `openssl`, which is not there")
    authority = os.path.join(options.folder, "authority")
    if not os.path.exists(authority):
        _publish(authority, lambda folder: _make_authority(folder, options.days))
        print(f"{authority}: a new authority")
    for host, name in hosts.items():
        folder = os.path.join(options.folder, host)
        if os.path.exists(folder):
            print(f"{folder}: is there, and stays")
            continue
        _publish(folder, lambda out, name=name: _sign(authority, out, name, options.days))
        print(f"{folder}: a certificate for {host}, for {command.count(options.days, 'day')}")
    return 0


def _subject_name(host: str) -> str:
    """The host as certificates have it: "DNS:node1", "IP:10.0.0.1"."""
    try:
        return f"IP:{ipaddress.ip_address(host)}"
    except ValueError:
        pass
    if len(host) > 253 or not _NAME.fullmatch(host) or host == "authority":
        raise command.CommandError(f'expected the name or the address of a host, got "{host}"')
    return f"DNS:{host}"


def _publish(folder: str, make: Any) -> None:
    """Makes a folder aside, so that it is there whole or not at all."""
    parent = os.path.dirname(folder) or "."
    os.makedirs(parent, exist_ok=True)
    aside = tempfile.mkdtemp(prefix=".certs-", dir=parent)  # for this user alone
    try:
        make(aside)
        os.rename(aside, folder)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def _make_authority(folder: str, days: int) -> None:
    key, certificate = os.path.join(folder, "key.pem"), os.path.join(folder, "ca.pem")
    _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key)
    _openssl(
        "req", "-x509", "-new", "-key", key, "-sha256", "-days", str(days),
        "-subj", "/CN=Millrace cluster", "-out", certificate,
        "-addext", "basicConstraints=critical,CA:TRUE,pathlen:0",
        "-addext", "keyUsage=critical,keyCertSign,cRLSign",
    )  # fmt: skip


def _sign(authority: str, folder: str, name: str, days: int) -> None:
    key, request = os.path.join(folder, "key.pem"), os.path.join(folder, "request.pem")
    extensions = os.path.join(folder, "extensions")
    _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key)
    _openssl("req", "-new", "-key", key, "-subj", "/CN=Millrace task", "-out", request)
    with open(extensions, "w") as file:
        # Tasks of one machine may call each other localhost.
        file.write(
            f"subjectAltName={name},DNS:localhost,IP:127.0.0.1,IP:::1\n"
            "basicConstraints=critical,CA:FALSE\n"
            "keyUsage=critical,digitalSignature\n"
            "extendedKeyUsage=serverAuth,clientAuth\n"
        )
    _openssl(
        "x509", "-req", "-in", request, "-sha256", "-days", str(days), "-extfile", extensions,
        "-CA", os.path.join(authority, "ca.pem"), "-CAkey", os.path.join(authority, "key.pem"),
        "-CAcreateserial", "-out", os.path.join(folder, "cert.pem"),
    )  # fmt: skip
    shutil.copyfile(os.path.join(authority, "ca.pem"), os.path.join(folder, "ca.pem"))
    os.remove(request)
    os.remove(extensions)


def _openssl(*arguments: str) -> None:
    done = subprocess.run(
        ["openssl", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        raise command.CommandError(f"openssl {arguments[0]}: {lines[-1] if lines else 'failed'}")
