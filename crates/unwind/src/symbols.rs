//! The functions in the symbol table of a program's file. Line tables have the last part of a function's name
//! only, if another was inlined into it; the symbol table has its whole path.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The sizes of the file's header, of a section's and of a symbol, in ELF's 64-bit form.
const HEADER: usize = 64;
const SECTION: usize = 64;
const SYMBOL: usize = 24;
/// Types of sections: the symbol table, and its part that the loader reads, which a stripped file has still.
const SYMTAB: u32 = 2;
const DYNSYM: u32 = 11;
/// The type of a symbol that is a function.
const FUNCTION: u8 = 2;

/// The functions of a file, by address.
#[derive(Debug)]
pub(crate) struct Symbols {
    /// Address, size, and where the name is.
    functions: Vec<(u64, u64, u32)>,
    names: Vec<u8>,
}

impl Symbols {
    /// Those of a file. `None` if it cannot be read, or is none of this machine's programs.
    pub(crate) fn load(path: &Path) -> Option<Symbols> {
        let file = File::open(path).ok()?;
        let len = file.metadata().ok()?.len();
        let read = |at: u64, n: u64| {
            // The file says how much it is, and may be damaged.
            let end = at.checked_add(n).filter(|&end| end <= len)?;
            let mut bytes = vec![0; (end - at) as usize];
            file.read_exact_at(&mut bytes, at).ok()?;
            Some(bytes)
        };
        let header = read(0, HEADER as u64)?;
        // 64 bits, the byte order of all that windlass runs on.
        if header[..6] != *b"\x7fELF\x02\x01" || half(&header, 58) as usize != SECTION {
            return None;
        }
        let n_sections = u64::from(half(&header, 60));
        let sections = read(long(&header, 40), n_sections * SECTION as u64)?;
        let sections: Vec<&[u8]> = sections.chunks_exact(SECTION).collect();
        let of_type = |wanted| sections.iter().find(move |s| word(s, 4) == wanted);
        let table = of_type(SYMTAB).or_else(|| of_type(DYNSYM))?;
        let names = sections.get(word(table, 40) as usize)?;
        let content = |section: &[u8]| read(long(section, 24), long(section, 32));
        let (symbols, names) = (content(table)?, content(names)?);
        let function = |symbol: &[u8]| {
            let (at, size) = (long(symbol, 8), long(symbol, 16));
            // A symbol of another file has no section.
            let is_here = symbol[4] & 0xf == FUNCTION && half(symbol, 6) != 0 && size > 0;
            is_here.then(|| (at, size, word(symbol, 0)))
        };
        let symbols = symbols.chunks_exact(SYMBOL);
        let mut functions: Vec<_> = symbols.filter_map(function).collect();
        functions.sort_unstable();
        Some(Symbols { functions, names })
    }

    /// The name of the function that has an address of the file.
    pub(crate) fn name(&self, at: u64) -> Option<&[u8]> {
        let after = self.functions.partition_point(|&(begin, ..)| begin <= at);
        let &(begin, size, name) = self.functions.get(after.checked_sub(1)?)?;
        let name = self
            .names
            .get(name as usize..)
            .filter(|_| at - begin < size)?;
        name.split(|&byte| byte == 0).next()
    }
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from(half(bytes, at)) | u32::from(half(bytes, at + 2)) << 16
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_file_has_no_symbols() {
        let program = std::fs::read("/proc/self/exe").unwrap();
        let path = std::env::temp_dir().join(format!("windlass-symbols-{}", std::process::id()));
        let load = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            let symbols = Symbols::load(&path);
            std::fs::remove_file(&path).unwrap();
            symbols
        };
        assert!(load(&program).is_some());
        for n in [0, 5, HEADER - 1, HEADER, program.len() / 2] {
            assert!(load(&program[..n]).is_none(), "{n} bytes");
        }
        let mut text = vec![b'#'; 1000];
        assert!(load(&text).is_none());
        // A header whose table of sections ends behind the last address.
        text[..HEADER].copy_from_slice(&program[..HEADER]);
        text[40..48].fill(0xff);
        assert!(load(&text).is_none());
        assert!(Symbols::load(Path::new("/nowhere/at/all")).is_none());
    }
}
