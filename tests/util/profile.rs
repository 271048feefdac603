//! docs/seccomp.json as a filter for this process: what a container engine makes of it.

use serde_json::Value;

use crate::filter::{self, JUMP_IF_EQUAL, LOAD_WORD, RETURN, step};

/// The profile.
pub(crate) fn profile() -> Value {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/seccomp.json");
    let text = std::fs::read_to_string(file).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The names in the profile, with their rules.
pub(crate) fn rules(profile: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let all = profile["syscalls"].as_array().unwrap().iter();
    all.flat_map(|rule| {
        let names = rule["names"].as_array().unwrap().iter();
        names.map(move |name| (name.as_str().unwrap(), rule))
    })
}

const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;

/// Installs the profile without the calls `left_out`, in the threads that the flags say.
pub(crate) fn install(flags: libc::c_ulong, profile: &Value, left_out: &[&str]) {
    let denied = |errno: &Value| libc::SECCOMP_RET_ERRNO | errno.as_u64().unwrap() as u32;
    assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
    let by_default = step(RETURN, 0, 0, denied(&profile["defaultErrnoRet"]));
    let allow = step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW);
    // The number of the call lies at offset 0 of what the filter sees, its arguments, eight bytes each, from 16 on.
    let mut filter = vec![step(LOAD_WORD, 0, 0, 0)];
    for (name, rule) in rules(profile).filter(|(name, _)| !left_out.contains(name)) {
        let number = NUMBERS.iter().find(|(known, _)| *known == name);
        // One of another machine.
        let Some(number) = number.map(|(_, number)| *number as u32) else {
            continue;
        };
        let result = match rule["action"].as_str().unwrap() {
            "SCMP_ACT_ALLOW" => allow,
            "SCMP_ACT_ERRNO" => step(RETURN, 0, 0, denied(&rule["errnoRet"])),
            other => panic!("{other}"),
        };
        let Some(condition) = rule.get("args") else {
            filter.extend([step(JUMP_IF_EQUAL, 0, 1, number), result]);
            continue;
        };
        let condition = &condition[0];
        assert_eq!(condition["op"], "SCMP_CMP_MASKED_EQ");
        let of = |key| condition[key].as_u64().unwrap() as u32;
        filter.extend([
            step(JUMP_IF_EQUAL, 0, 5, number),
            step(LOAD_WORD, 0, 0, 16 + 8 * of("index")),
            step(AND, 0, 0, of("value")),
            step(JUMP_IF_EQUAL, 0, 1, of("valueTwo")),
            result,
            by_default,
        ]);
    }
    filter.push(by_default);
    filter::install(flags, &mut filter);
}

/// The names in the profile that are not in the tables below.
pub(crate) fn unknown(profile: &Value) -> Vec<&str> {
    let known = |name: &str| NUMBERS.iter().any(|(known, _)| *known == name);
    let is_of_x86 = |name: &str| OF_X86.split_whitespace().any(|known| known == name);
    let names = rules(profile).map(|(name, _)| name);
    names
        .filter(|name| !known(name) && (cfg!(target_arch = "x86_64") || !is_of_x86(name)))
        .collect()
}

/// Names that x86-64 alone has.
const OF_X86: &str = "access arch_prctl chmod chown dup2 epoll_wait fork getpgrp getrlimit lchown link lstat mkdir open pause pipe poll readlink rename rmdir select setrlimit stat symlink time unlink vfork";

/// The numbers of the calls here.
const NUMBERS: &[(&str, libc::c_long)] = &[
    ("accept", libc::SYS_accept),
    ("accept4", libc::SYS_accept4),
    ("bind", libc::SYS_bind),
    ("brk", libc::SYS_brk),
    ("chdir", libc::SYS_chdir),
    ("clock_getres", libc::SYS_clock_getres),
    ("clock_gettime", libc::SYS_clock_gettime),
    ("clock_nanosleep", libc::SYS_clock_nanosleep),
    ("clone", libc::SYS_clone),
    ("clone3", libc::SYS_clone3),
    ("close", libc::SYS_close),
    ("close_range", libc::SYS_close_range),
    ("connect", libc::SYS_connect),
    ("copy_file_range", libc::SYS_copy_file_range),
    ("dup", libc::SYS_dup),
    ("dup3", libc::SYS_dup3),
    ("epoll_create1", libc::SYS_epoll_create1),
    ("epoll_ctl", libc::SYS_epoll_ctl),
    ("epoll_pwait", libc::SYS_epoll_pwait),
    ("epoll_pwait2", libc::SYS_epoll_pwait2),
    ("eventfd2", libc::SYS_eventfd2),
    ("execve", libc::SYS_execve),
    ("execveat", libc::SYS_execveat),
    ("exit", libc::SYS_exit),
    ("exit_group", libc::SYS_exit_group),
    ("faccessat", libc::SYS_faccessat),
    ("faccessat2", libc::SYS_faccessat2),
    ("fadvise64", libc::SYS_fadvise64),
    ("fallocate", libc::SYS_fallocate),
    ("fchdir", libc::SYS_fchdir),
    ("fchmod", libc::SYS_fchmod),
    ("fchmodat", libc::SYS_fchmodat),
    ("fchown", libc::SYS_fchown),
    ("fchownat", libc::SYS_fchownat),
    ("fcntl", libc::SYS_fcntl),
    ("fdatasync", libc::SYS_fdatasync),
    ("flock", libc::SYS_flock),
    ("fstat", libc::SYS_fstat),
    ("fstatfs", libc::SYS_fstatfs),
    ("fsync", libc::SYS_fsync),
    ("ftruncate", libc::SYS_ftruncate),
    ("futex", libc::SYS_futex),
    ("get_mempolicy", libc::SYS_get_mempolicy),
    ("get_robust_list", libc::SYS_get_robust_list),
    ("getcpu", libc::SYS_getcpu),
    ("getcwd", libc::SYS_getcwd),
    ("getdents64", libc::SYS_getdents64),
    ("getegid", libc::SYS_getegid),
    ("geteuid", libc::SYS_geteuid),
    ("getgid", libc::SYS_getgid),
    ("getgroups", libc::SYS_getgroups),
    ("getpeername", libc::SYS_getpeername),
    ("getpgid", libc::SYS_getpgid),
    ("getpid", libc::SYS_getpid),
    ("getppid", libc::SYS_getppid),
    ("getpriority", libc::SYS_getpriority),
    ("getrandom", libc::SYS_getrandom),
    ("getresgid", libc::SYS_getresgid),
    ("getresuid", libc::SYS_getresuid),
    ("getrusage", libc::SYS_getrusage),
    ("getsid", libc::SYS_getsid),
    ("getsockname", libc::SYS_getsockname),
    ("getsockopt", libc::SYS_getsockopt),
    ("gettid", libc::SYS_gettid),
    ("gettimeofday", libc::SYS_gettimeofday),
    ("getuid", libc::SYS_getuid),
    ("inotify_add_watch", libc::SYS_inotify_add_watch),
    ("inotify_init1", libc::SYS_inotify_init1),
    ("inotify_rm_watch", libc::SYS_inotify_rm_watch),
    ("io_uring_enter", libc::SYS_io_uring_enter),
    ("io_uring_register", libc::SYS_io_uring_register),
    ("io_uring_setup", libc::SYS_io_uring_setup),
    ("ioctl", libc::SYS_ioctl),
    ("kill", libc::SYS_kill),
    ("linkat", libc::SYS_linkat),
    ("listen", libc::SYS_listen),
    ("lseek", libc::SYS_lseek),
    ("madvise", libc::SYS_madvise),
    ("mbind", libc::SYS_mbind),
    ("membarrier", libc::SYS_membarrier),
    ("memfd_create", libc::SYS_memfd_create),
    ("mincore", libc::SYS_mincore),
    ("mkdirat", libc::SYS_mkdirat),
    ("mlock", libc::SYS_mlock),
    ("mmap", libc::SYS_mmap),
    ("move_pages", libc::SYS_move_pages),
    ("mprotect", libc::SYS_mprotect),
    ("mremap", libc::SYS_mremap),
    ("munlock", libc::SYS_munlock),
    ("munmap", libc::SYS_munmap),
    ("nanosleep", libc::SYS_nanosleep),
    ("newfstatat", libc::SYS_newfstatat),
    ("openat", libc::SYS_openat),
    ("openat2", libc::SYS_openat2),
    ("pidfd_open", libc::SYS_pidfd_open),
    ("pidfd_send_signal", libc::SYS_pidfd_send_signal),
    ("pipe2", libc::SYS_pipe2),
    ("ppoll", libc::SYS_ppoll),
    ("prctl", libc::SYS_prctl),
    ("pread64", libc::SYS_pread64),
    ("preadv", libc::SYS_preadv),
    ("preadv2", libc::SYS_preadv2),
    ("prlimit64", libc::SYS_prlimit64),
    ("pselect6", libc::SYS_pselect6),
    ("pwrite64", libc::SYS_pwrite64),
    ("pwritev", libc::SYS_pwritev),
    ("pwritev2", libc::SYS_pwritev2),
    ("read", libc::SYS_read),
    ("readlinkat", libc::SYS_readlinkat),
    ("readv", libc::SYS_readv),
    ("recvfrom", libc::SYS_recvfrom),
    ("recvmmsg", libc::SYS_recvmmsg),
    ("recvmsg", libc::SYS_recvmsg),
    ("renameat", libc::SYS_renameat),
    ("renameat2", libc::SYS_renameat2),
    ("restart_syscall", libc::SYS_restart_syscall),
    ("rseq", libc::SYS_rseq),
    ("rt_sigaction", libc::SYS_rt_sigaction),
    ("rt_sigpending", libc::SYS_rt_sigpending),
    ("rt_sigprocmask", libc::SYS_rt_sigprocmask),
    ("rt_sigqueueinfo", libc::SYS_rt_sigqueueinfo),
    ("rt_sigreturn", libc::SYS_rt_sigreturn),
    ("rt_sigsuspend", libc::SYS_rt_sigsuspend),
    ("rt_sigtimedwait", libc::SYS_rt_sigtimedwait),
    ("sched_get_priority_max", libc::SYS_sched_get_priority_max),
    ("sched_get_priority_min", libc::SYS_sched_get_priority_min),
    ("sched_getaffinity", libc::SYS_sched_getaffinity),
    ("sched_getattr", libc::SYS_sched_getattr),
    ("sched_getparam", libc::SYS_sched_getparam),
    ("sched_getscheduler", libc::SYS_sched_getscheduler),
    ("sched_setaffinity", libc::SYS_sched_setaffinity),
    ("sched_setattr", libc::SYS_sched_setattr),
    ("sched_yield", libc::SYS_sched_yield),
    ("sendfile", libc::SYS_sendfile),
    ("sendmmsg", libc::SYS_sendmmsg),
    ("sendmsg", libc::SYS_sendmsg),
    ("sendto", libc::SYS_sendto),
    ("set_mempolicy", libc::SYS_set_mempolicy),
    ("set_robust_list", libc::SYS_set_robust_list),
    ("set_tid_address", libc::SYS_set_tid_address),
    ("setpgid", libc::SYS_setpgid),
    ("setpriority", libc::SYS_setpriority),
    ("setsid", libc::SYS_setsid),
    ("setsockopt", libc::SYS_setsockopt),
    ("shutdown", libc::SYS_shutdown),
    ("sigaltstack", libc::SYS_sigaltstack),
    ("socket", libc::SYS_socket),
    ("socketpair", libc::SYS_socketpair),
    ("splice", libc::SYS_splice),
    ("statfs", libc::SYS_statfs),
    ("statx", libc::SYS_statx),
    ("symlinkat", libc::SYS_symlinkat),
    ("sync_file_range", libc::SYS_sync_file_range),
    ("sysinfo", libc::SYS_sysinfo),
    ("tee", libc::SYS_tee),
    ("tgkill", libc::SYS_tgkill),
    ("timerfd_create", libc::SYS_timerfd_create),
    ("timerfd_gettime", libc::SYS_timerfd_gettime),
    ("timerfd_settime", libc::SYS_timerfd_settime),
    ("times", libc::SYS_times),
    ("tkill", libc::SYS_tkill),
    ("truncate", libc::SYS_truncate),
    ("umask", libc::SYS_umask),
    ("uname", libc::SYS_uname),
    ("unlinkat", libc::SYS_unlinkat),
    ("utimensat", libc::SYS_utimensat),
    ("wait4", libc::SYS_wait4),
    ("waitid", libc::SYS_waitid),
    ("write", libc::SYS_write),
    ("writev", libc::SYS_writev),
    #[cfg(target_arch = "x86_64")]
    ("access", libc::SYS_access),
    #[cfg(target_arch = "x86_64")]
    ("arch_prctl", libc::SYS_arch_prctl),
    #[cfg(target_arch = "x86_64")]
    ("chmod", libc::SYS_chmod),
    #[cfg(target_arch = "x86_64")]
    ("chown", libc::SYS_chown),
    #[cfg(target_arch = "x86_64")]
    ("dup2", libc::SYS_dup2),
    #[cfg(target_arch = "x86_64")]
    ("epoll_wait", libc::SYS_epoll_wait),
    #[cfg(target_arch = "x86_64")]
    ("fork", libc::SYS_fork),
    #[cfg(target_arch = "x86_64")]
    ("getpgrp", libc::SYS_getpgrp),
    #[cfg(target_arch = "x86_64")]
    ("getrlimit", libc::SYS_getrlimit),
    #[cfg(target_arch = "x86_64")]
    ("lchown", libc::SYS_lchown),
    #[cfg(target_arch = "x86_64")]
    ("link", libc::SYS_link),
    #[cfg(target_arch = "x86_64")]
    ("lstat", libc::SYS_lstat),
    #[cfg(target_arch = "x86_64")]
    ("mkdir", libc::SYS_mkdir),
    #[cfg(target_arch = "x86_64")]
    ("open", libc::SYS_open),
    #[cfg(target_arch = "x86_64")]
    ("pause", libc::SYS_pause),
    #[cfg(target_arch = "x86_64")]
    ("pipe", libc::SYS_pipe),
    #[cfg(target_arch = "x86_64")]
    ("poll", libc::SYS_poll),
    #[cfg(target_arch = "x86_64")]
    ("readlink", libc::SYS_readlink),
    #[cfg(target_arch = "x86_64")]
    ("rename", libc::SYS_rename),
    #[cfg(target_arch = "x86_64")]
    ("rmdir", libc::SYS_rmdir),
    #[cfg(target_arch = "x86_64")]
    ("select", libc::SYS_select),
    #[cfg(target_arch = "x86_64")]
    ("setrlimit", libc::SYS_setrlimit),
    #[cfg(target_arch = "x86_64")]
    ("stat", libc::SYS_stat),
    #[cfg(target_arch = "x86_64")]
    ("symlink", libc::SYS_symlink),
    #[cfg(target_arch = "x86_64")]
    ("time", libc::SYS_time),
    #[cfg(target_arch = "x86_64")]
    ("unlink", libc::SYS_unlink),
    #[cfg(target_arch = "x86_64")]
    ("vfork", libc::SYS_vfork),
];
