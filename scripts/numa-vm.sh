#!/usr/bin/env bash
# Runs a program on a machine of several NUMA nodes that is not there: a small
# Linux under qemu's emulation, with the program and its libraries in its
# initial file system and nothing else. Nodes, distances, page placement and
# pinning are real to the kernel inside; time is not (5 to 20 times slower, and
# remote memory costs what local memory does).
#
#   scripts/numa-vm.sh [OPTION ..] PROGRAM [ARG..]
#   scripts/numa-vm.sh [OPTION ..] --prepare      only gets what it takes
#
#   --arch x86_64|aarch64   --nodes 1|2|4|8       --cpus-per-node N (2)   --memoryless (the last node)
#   --kernel SUITE          that of a Debian suite, as trixie-backports
#   --append WORDS          for the kernel's command line, as preempt=lazy
#   --timeout SECONDS (300)
#
# --arch aarch64 runs a program built for that architecture (scripts/aarch64.sh builds them).
#
# Variables whose names begin with RUST_ or WINDLASS_ are handed in.
# The exit status is the program's; 124 after the timeout, 125 if the machine
# ended without one, 77 if no machine can be had here (to be skipped by tests).
#
# Needs qemu-system-x86_64 (or -aarch64), a kernel and a static busybox. Where they are missing
# and there is apt, they come from the distribution: qemu is installed, the
# other two are kept in a cache folder. QEMU, NUMA_VM_KERNEL and NUMA_VM_BUSYBOX
# name others.
set -euo pipefail

arch=x86_64 nodes=2 memoryless=0 timeout=300 prepare=0 suite='' append=''
cpus_per_node=2 mib_per_node=1024

say() { printf 'numa-vm: %s\n' "$*" >&2; }
die() { say "$2"; exit "$1"; }

while [ $# -gt 0 ]; do
    case $1 in
        --arch) arch=${2:?--arch needs a name}; shift 2 ;;
        --nodes) nodes=${2:?--nodes needs a number}; shift 2 ;;
        --cpus-per-node) cpus_per_node=${2:?--cpus-per-node needs a number}; shift 2 ;;
        --kernel) suite=${2:?--kernel needs a suite}; shift 2 ;;
        --append) append=${2:?--append needs words}; shift 2 ;;
        --timeout) timeout=${2:?--timeout needs seconds}; shift 2 ;;
        --memoryless) memoryless=1; shift ;;
        --prepare) prepare=1; shift ;;
        --) shift; break ;;
        -*) die 2 "unknown option $1: the head of this script lists them" ;;
        *) break ;;
    esac
done
case $nodes in 1 | 2 | 4 | 8) ;; *) die 2 "--nodes $nodes: choose 1, 2, 4 or 8" ;; esac
((nodes > memoryless)) || die 2 "--memoryless needs more than one node"
# Debian's names for the architecture and for its emulator, and the folder of what is downloaded.
case $arch in
    x86_64) deb=amd64 qemu_package=qemu-system-x86 tty=ttyS folder=windlass-numa ;;
    aarch64) deb=arm64 qemu_package=qemu-system-arm tty=ttyAMA folder=windlass-aarch64 ;;
    *) die 2 "--arch $arch: choose x86_64 or aarch64" ;;
esac
qemu=${QEMU:-qemu-system-$arch}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/$folder
kernel=${NUMA_VM_KERNEL:-$cache/vmlinuz${suite:+-$suite}}
busybox=${NUMA_VM_BUSYBOX:-$cache/busybox}
# The file system is packed here, not in the machine.
packer=$busybox
[ "$arch" = x86_64 ] || packer=${XDG_CACHE_HOME:-$HOME/.cache}/windlass-numa/busybox
[ "$prepare" = 1 ] || [ $# -gt 0 ] || die 2 "no program was named"
[ "$(uname -m)" = x86_64 ] || die 77 "only written for x86-64 hosts"

work=$(mktemp -d)
machine=
trap '[ -z "$machine" ] || kill "$machine" 2>/dev/null || true; rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# --- What it takes --------------------------------------------------------------

. "$(dirname "$0")/debian.sh"

# Emulation of several CPUs in threads has races in qemu before 8.1, which crash the guest.
qemu_is_good() {
    local version
    version=$("$qemu" --version 2>/dev/null | sed -n '1s/.*version \([0-9]*\.[0-9]*\).*/\1/p')
    [ -n "$version" ] && [ "$(printf '8.1\n%s\n' "$version" | sort -V | head -1)" = 8.1 ]
}

get_qemu() {
    say "installing $qemu_package"
    local bios=()
    [ "$arch" != x86_64 ] || bios=(seabios)
    if use_index "$(release)-backports" && download "$qemu_package" qemu-system-common qemu-system-data "${bios[@]}"; then
        as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=120 install --yes --no-install-recommends \
            "$work"/debs/*.deb >"$work/log" 2>&1 && return
    fi
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=120 install --yes --no-install-recommends \
        "$qemu_package" >"$work/log" 2>&1 || { tail -3 "$work/log" >&2; return 1; }
}

# The package that another one depends on, of those whose names begin like this.
dependency() {
    with_index apt-cache depends "$1" 2>/dev/null | awk -v name="$2" '$1 == "Depends:" && index($2, name) == 1 { print $2; exit }'
}

# The slim kernel for virtual machines: of the suite that was chosen, or newer from the backports, else the release's.
get_kernel() {
    say "fetching a kernel"
    local package one
    for one in ${suite:-"$(release)-backports" "$(release)"}; do
        use_index --arch "$deb" "$one" || continue
        package=$(dependency "linux-image-cloud-$deb" linux-image-)
        [ -z "$package" ] || break
    done
    # Newer packages have the kernel in a package of its own.
    [ -n "$package" ] && one=$(dependency "$package" linux-binary-) && download "${one:-$package}" || return 1
    mkdir "$work/kernel"
    dpkg-deb --fsys-tarfile "$work"/debs/*.deb | tar -x -C "$work/kernel" --wildcards '*/vmlinuz*'
    find "$work/kernel" -type f -exec mv {} "$kernel" \;
}

get_busybox() { # get_busybox ARCHITECTURE FILE
    say "fetching busybox"
    use_index --arch "$1" "$(release)" && download busybox-static && rm -rf "$work/bb" &&
        dpkg-deb -x "$work"/debs/*.deb "$work/bb" || return 1
    mkdir -p "$(dirname "$2")"
    mv "$(find "$work/bb" -type f -path "*bin/busybox" | head -1)" "$2"
}

get_all() {
    mkdir -p "$cache"
    exec 9>"$cache/lock"
    flock 9
    if ! { qemu_is_good && [ -s "$kernel" ] && [ -x "$busybox" ] && [ -x "$packer" ]; }; then
        command -v apt-get >/dev/null || { "$qemu" --version >/dev/null 2>&1 && [ -s "$kernel" ] && [ -x "$busybox" ] && [ -x "$packer" ]; } ||
            die 77 "no apt-get here: install qemu and set NUMA_VM_KERNEL and NUMA_VM_BUSYBOX (a static one)"
        apt-cache show "$qemu_package" >/dev/null 2>&1 || as_root apt-get -qq update >&2 || true
        [ -x "$busybox" ] || get_busybox "$deb" "$busybox" || die 77 "busybox-static cannot be had"
        [ -x "$packer" ] || get_busybox amd64 "$packer" || die 77 "busybox-static cannot be had"
        [ -s "$kernel" ] || get_kernel || die 77 "linux-image-cloud-$deb cannot be had"
        "$qemu" --version >/dev/null 2>&1 && { qemu_is_good || [ -e "$cache/older-qemu" ]; } || get_qemu ||
            die 77 "$qemu_package cannot be had"
        qemu_is_good || { : >"$cache/older-qemu"; say "this qemu is older than 8.1: the machine may crash now and then"; }
    fi
    exec 9>&-
}

# --- What is inside ---------------------------------------------------------------

# The libraries that a program of a foreign architecture names, and those that they name:
# scripts/aarch64.sh has put them into a folder.
foreign_libraries() {
    local name found
    for name in $(LC_ALL=C "$arch-linux-gnu-readelf" -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
        [ ! -e "$work/root/lib/$name" ] || continue
        found=$(find "$cache/sysroot" -name "$name" | head -1)
        [ -n "$found" ] || die 77 "$name for $arch is missing: scripts/aarch64.sh --prepare gets it"
        mkdir -p "$work/root/lib"
        cp -L "$found" "$work/root/lib/$name"
        foreign_libraries "$found"
    done
}

# Copies a file to where it is here, and the libraries that it names.
put() {
    mkdir -p "$work/root/$(dirname "$1")"
    cp -L "$1" "$work/root/$1"
    if [ "$arch" != "$(uname -m)" ]; then
        foreign_libraries "$1"
        return
    fi
    local library
    for library in $(ldd "$1" 2>/dev/null | grep -o '/[^ ]*'); do
        [ -e "$work/root/$library" ] || { mkdir -p "$work/root/$(dirname "$library")" && cp -L "$library" "$work/root/$library"; }
    done
}

quoted() { printf "'%s' " "${1//\'/\'\\\'\'}"; }

pack() {
    local program=$1 root=$work/root word
    shift
    mkdir -p "$root"/{bin,dev,proc,sys,tmp,etc,root}
    cp "$busybox" "$root/bin/busybox"
    printf 'root:x:0:0:root:/root:/bin/sh\n' >"$root/etc/passwd"
    printf '127.0.0.1 localhost\n' >"$root/etc/hosts"
    put "$program"
    {
        printf 'exec env HOME=/root PATH=/bin '
        while IFS= read -r -d '' word; do
            case $word in RUST_* | WINDLASS_*) quoted "$word" ;; esac
        done < <(env --null)
        for word in "$program" "$@"; do quoted "$word"; done
    } >"$root/run"
    sed "s/@tty@/$tty/" >"$root/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir /dev/shm && mount -t tmpfs shm /dev/shm
mount -t cgroup2 cgroup /sys/fs/cgroup
chmod 1777 /tmp /dev/shm
ln -s /proc/self/fd /dev/fd
ip link set lo up
# Before Linux 6.13 each guard page of a stack is a mapping.
echo 1000000 >/proc/sys/vm/max_map_count
ulimit -n 65536
stty -F /dev/@tty@1 raw -echo
echo numa-vm-began >/dev/@tty@0
sh /run </dev/null >/dev/@tty@1 2>&1
echo "numa-vm-status $?" >/dev/@tty@0
sync
poweroff -f
INIT
    chmod +x "$root/init"
    (cd "$root" && find . | "$packer" cpio -o -H newc -R 0:0 2>/dev/null | gzip -1 >../initrd)
}

# --- The machine --------------------------------------------------------------------

# Two nodes: a socket each. More: sockets of two, nearer within a socket.
hardware() {
    local node other far sockets=$((nodes < 4 ? nodes : nodes / 2))
    args=(-nodefaults -no-user-config -no-reboot -display none -monitor none -accel tcg,thread=multi)
    if [ "$arch" = aarch64 ]; then
        # A server's core with the atomic instructions of Armv8.1.
        args+=(-machine virt,gic-version=3 -cpu neoverse-n1
            -smp "$((nodes * cpus_per_node)),sockets=$nodes,cores=$cpus_per_node,threads=1")
    else
        # An Intel identity, so that caches follow the cores; without the leaf that qemu 10 gets wrong.
        args+=(-machine q35 -cpu max,vendor=GenuineIntel,family=6,model=106,stepping=6,level=0x0d
            -smp "$((nodes * cpus_per_node)),sockets=$sockets,dies=$((nodes / sockets)),cores=$cpus_per_node,threads=1")
    fi
    args+=(-m "$(((nodes - memoryless) * mib_per_node))")
    for ((node = 0; node < nodes; node++)); do
        local memory=
        if ((node < nodes - memoryless)); then
            args+=(-object "memory-backend-ram,id=memory$node,size=${mib_per_node}M")
            memory=,memdev=memory$node
        fi
        args+=(-numa "node,nodeid=$node,cpus=$((node * cpus_per_node))-$(((node + 1) * cpus_per_node - 1))$memory")
    done
    for ((node = 0; node < nodes; node++)); do
        for ((other = 0; other < nodes; other++)); do
            far=21
            ((nodes == 2)) || far=$((node / 2 == other / 2 ? 12 : 32))
            ((node != other)) || far=10
            args+=(-numa "dist,src=$node,dst=$other,val=$far")
        done
    done
    args+=(-kernel "$kernel" -initrd "$work/initrd"
        -append "console=${tty}0 quiet loglevel=4 panic=-1 mitigations=off nowatchdog numa_balancing=disable tsc=reliable $append"
        # The first line is the kernel's and the status's, the second the program's.
        -serial "file:$work/console" -serial stdio)
}

boot() {
    : >"$work/console"
    status=0
    timeout --kill-after 5 "$timeout" "$qemu" "${args[@]}" </dev/null 2>"$work/qemu.log" &
    machine=$!
    wait "$machine" || status=$?
    machine=
}

get_all
[ "$prepare" = 0 ] || exit 0
program=$(command -v -- "$1") || die 2 "no such program: $1"
shift
pack "$(realpath -s "$program")" "$@"
hardware
# One that dies before the program begins may be tried again; the program is never begun twice.
for _ in 1 2 3; do
    boot
    grep -q numa-vm-began "$work/console" || [ "$status" != 0 ] || { say "the machine crashed at boot: once more"; continue; }
    break
done
ended=$(tr -d '\r' <"$work/console" | sed -n 's/.*numa-vm-status \([0-9]*\).*/\1/p')
[ -z "$ended" ] || exit "$ended"
cat "$work/qemu.log" "$work/console" | tail -40 >&2
[ "$status" != 124 ] && [ "$status" != 137 ] || die 124 "no end within $timeout s"
die 125 "the machine ended (qemu: $status) before the program"
