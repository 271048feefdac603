#!/usr/bin/env bash
# Installs what `make test-servers` needs, where it is missing and where that can be done without asking anybody:
# the servers of Redis, MariaDB, PostgreSQL, MQTT, SMTP and FTP, and OpenSSL's headers. It starts no server. What
# cannot be installed is said; the tests with that server skip, and say so, too.
#
# The exit status is 77 if there are no headers of OpenSSL, without which the tests cannot be built.
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/root.sh

has_headers() { pkg-config --exists openssl; }
has_program() { PATH="$PATH:/usr/sbin" command -v "$1" >/dev/null; }
has_module() { /usr/bin/python3 -c "import $1" 2>/dev/null; }

missing=()
has_headers || missing+=(libssl-dev)
has_program redis-server || missing+=(redis-server)
# The server without its service, which needs no configuration.
has_program mariadbd || missing+=(mariadb-server-core)
compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || missing+=(postgresql)
has_program mosquitto || missing+=(mosquitto)
# Servers in Python: they run under any account, on any port and in any directory. vsftpd and the mailers of
# Debian want to be root, and the mailers have one queue for the whole machine.
has_module aiosmtpd || missing+=(python3-aiosmtpd)
has_module pyftpdlib || missing+=(python3-pyftpdlib)

if [ ${#missing[@]} -gt 0 ] && command -v apt-get >/dev/null; then
    printf 'servers: installing %s\n' "${missing[*]}"
    # A package asks this program whether it may start its service. The answer is no.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e $policy ] && printf '#!/bin/sh\nexit 101\n' | as_root install -m 755 /dev/stdin $policy; then
        trap 'as_root rm -f $policy' EXIT
    fi
    # If the lists of packages cannot be fetched, those that are known may do.
    as_root apt-get update || true
    # One by one: that a distribution lacks one of them is no reason to go without the others.
    for package in "${missing[@]}"; do
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "$package" ||
            printf 'servers: that did not work, so tests that need %s will be skipped\n' "$package" >&2
    done
fi

if ! has_headers; then
    echo "servers: there are no headers of OpenSSL" >&2
    exit 77
fi
