# Functions for scripts that fetch Debian packages without changing the machine's package lists.
# To be sourced. Needs: $work, a temporary folder.
# shellcheck shell=bash

. "$(dirname "${BASH_SOURCE[0]}")/root.sh"

# The name of this machine's Debian release.
release() {
    . /etc/os-release && printf %s "${VERSION_CODENAME:-}"
}

# Runs a command of apt with the index that `use_index` has chosen.
with_index() {
    env ${index:+APT_CONFIG="$index"} "$@"
}

# use_index [--arch ARCH] SUITE: reads the list of packages of a suite, from the mirror that
# this machine uses, into a folder of our own.
index=
use_index() {
    local arch mirror folder
    arch=$(dpkg --print-architecture)
    [ "$1" != --arch ] || { arch=$2; shift 2; }
    index=
    folder=$work/apt/$1-$arch
    if [ ! -e "$folder/complete" ]; then
        mirror=$(apt-get indextargets --format '$(CODENAME) $(SITE)' 'Created-By: Packages' 2>/dev/null |
            awk -v name="$(release)" '$1 == name { print $2; exit }')
        [ -n "$mirror" ] || return 1
        mkdir -p "$folder/lists/partial" "$folder/cache/archives/partial"
        printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n' "$mirror" "$1" \
            >"$folder/sources.list"
        : >"$folder/status"
        cat >"$folder/conf" <<CONF
APT { Architecture "$arch"; Architectures { "$arch"; }; Sandbox::User "root"; };
Dir::Etc::SourceList "$folder/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::State::Lists "$folder/lists";
Dir::State::Status "$folder/status";
Dir::Cache "$folder/cache";
CONF
        # A suite that is not there may be no error to apt.
        APT_CONFIG=$folder/conf apt-get -qq update >&2 || return 1
        ls "$folder"/lists/*_Packages* >/dev/null 2>&1 || return 1
        : >"$folder/complete"
    fi
    index=$folder/conf
}

# Fetches packages of the chosen index into $work/debs, and nothing else is there then.
download() {
    rm -rf "$work/debs" && mkdir "$work/debs"
    (cd "$work/debs" && with_index apt-get -qq download "$@" >&2)
}
