# To be sourced by scripts that install without asking anybody.
# shellcheck shell=bash

# Runs a command as root. Fails where that is not possible without a password.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo --non-interactive "$@"
    else
        return 1
    fi
}
