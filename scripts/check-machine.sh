#!/bin/sh
# Say exactly what is missing before pip says it obscurely.
# usage: check-machine.sh PYTHON
python="$1"

if ! command -v "$python" >/dev/null 2>&1; then
    echo "pagemill needs Python 3.11 or newer and found no '$python'." >&2
    echo "On Debian or Ubuntu:  sudo apt-get install python3 python3-venv" >&2
    exit 1
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "pagemill needs Python 3.11 or newer; '$python' is $("$python" -V)." >&2
    echo "Name another one with  make PYTHON=python3.12 ..." >&2
    exit 1
fi
if ! "$python" -c 'import venv, ensurepip' >/dev/null 2>&1; then
    echo "'$python' cannot make virtual environments." >&2
    echo "On Debian or Ubuntu:  sudo apt-get install python3-venv" >&2
    exit 1
fi
