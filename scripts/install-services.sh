#!/bin/sh
# The programs that the tests of the service start for themselves: redis-server, PostgreSQL, Chromium.
# As root on Debian or Ubuntu it installs what is missing; anywhere else it says what is missing and goes on:
# the tests that need it are skipped with the same reason.
missing=""
command -v redis-server >/dev/null 2>&1 || missing="$missing redis-server"
ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || missing="$missing postgresql"
command -v chromium >/dev/null 2>&1 || missing="$missing chromium"
[ -z "$missing" ] && exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    # policy-rc.d: the tests start their own; no server of the system should start with the installation.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' > "$policy" && chmod +x "$policy"
        trap 'rm -f "$policy"' EXIT
    fi
    # shellcheck disable=SC2086
    if apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing \
        >/dev/null; then
        exit 0
    fi
    echo "apt-get could not install:$missing" >&2
fi
echo "Not installed:$missing. Tests that need them will be skipped." >&2
echo "On Debian or Ubuntu:  sudo apt-get install$missing" >&2
exit 0
