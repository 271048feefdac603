#!/usr/bin/env bash
# Installs the foreign programs that drive the examples in the tests (curl,
# redis-cli, redis-benchmark), where they are missing and where that can be done
# without asking anybody. What cannot be installed is said; its tests skip, and
# say so, too.
set -uo pipefail

missing=()
command -v curl >/dev/null || missing+=(curl)
command -v redis-benchmark >/dev/null || missing+=(redis)
[ ${#missing[@]} -gt 0 ] || exit 0

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo --non-interactive "$@"
    else
        return 1
    fi
}

# Debian has the clients of Redis in a package without the server.
packages() {
    printf '%s\n' "${missing[@]}" | sed "s/^redis$/$1/"
}

printf 'clients: installing %s\n' "${missing[*]}"
if command -v apt-get >/dev/null; then
    as_root apt-get update &&
        as_root env DEBIAN_FRONTEND=noninteractive \
            apt-get install --yes --no-install-recommends $(packages redis-tools)
elif command -v dnf >/dev/null; then
    as_root dnf install --assumeyes $(packages redis)
elif command -v pacman >/dev/null; then
    as_root pacman --sync --refresh --needed --noconfirm $(packages redis)
elif command -v zypper >/dev/null; then
    as_root zypper --non-interactive install $(packages redis)
else
    false
fi || printf 'clients: that did not work, so tests with %s will be skipped\n' "${missing[*]}" >&2
exit 0
