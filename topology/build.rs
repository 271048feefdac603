//! Says in one line what is missing where libhwloc cannot be found: the build script of hwloc2 says
//! nothing, and the linker says only `cannot find -lhwloc`, after all else was built.

#[cfg(feature = "hwloc")]
fn main() {
    hwloc::check();
}

#[cfg(not(feature = "hwloc"))]
fn main() {}

#[cfg(feature = "hwloc")]
mod hwloc {
    use std::env;
    use std::path::Path;
    use std::process::Command;

    /// The version that brought `hwloc_cpukinds_get_nr`.
    const MIN: (u32, u32) = (2, 4);

    const CURE: &str = "version 2.4 or newer is needed; install libhwloc-dev and pkg-config (Debian, Ubuntu), hwloc-devel and \
                        pkgconf-pkg-config (Fedora), hwloc and pkgconf (Arch) or hwloc-dev and pkgconf \
                        (Alpine), or build windlass without its default feature `hwloc`";

    pub(crate) fn check() {
        // Documentation is built without linking. For another architecture nothing may be linked either
        // (`cargo check`), and pkg-config would answer for this machine.
        let is_cross = env::var_os("HOST") != env::var_os("TARGET");
        if is_cross || env::var_os("DOCS_RS").is_some() {
            return;
        }
        match version() {
            Some(version) if is_new_enough(&version) => {}
            Some(version) => println!("cargo::error=libhwloc {version} is too old: {CURE}"),
            None if linker_finds_it() => {}
            None => println!("cargo::error=libhwloc was not found: {CURE}"),
        }
    }

    /// The version that pkg-config reports. Only hwloc2 tells cargo how to link.
    fn version() -> Option<String> {
        let mut probe = pkg_config::Config::new();
        probe.cargo_metadata(false).env_metadata(true);
        probe.probe("hwloc").ok().map(|library| library.version)
    }

    fn is_new_enough(version: &str) -> bool {
        let mut numbers = version.split('.').map(|n| n.parse::<u32>().unwrap_or(0));
        (numbers.next(), numbers.next()) >= (Some(MIN.0), Some(MIN.1))
    }

    /// Without pkg-config, libhwloc in one of the linker's own folders will do.
    fn linker_finds_it() -> bool {
        let cc = env::var_os("CC").unwrap_or_else(|| "cc".into());
        let find = |name: &str| {
            let output = Command::new(&cc)
                .arg(format!("-print-file-name={name}"))
                .output();
            // If there is no such file, it prints the bare name.
            output.is_ok_and(|o| Path::new(String::from_utf8_lossy(&o.stdout).trim()).is_absolute())
        };
        find("libhwloc.so") || find("libhwloc.a")
    }
}
