//! Readers for the kernel's files: lists and masks of CPUs, sizes, caches.
//!
//! Every file may be missing, and recorders write some of them differently.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use crate::{cpulist::parse_cpu_list, facts::GroupFacts};

/// The caches of a CPU by level, and whether they hold nothing but instructions. A group is known by
/// its lowest online CPU (of `online`; any CPU is taken for online without).
pub(crate) fn caches(
    dir: &Path,
    cpu: usize,
    online: Option<&BTreeSet<usize>>,
) -> BTreeMap<(u32, bool), GroupFacts> {
    let mut caches = BTreeMap::new();
    for index in numbered_entries(dir, "index") {
        let index = dir.join(format!("index{index}"));
        let text = |name: &str| read_text(&index.join(name));
        let Some(level) = text("level").and_then(|level| level.parse::<u32>().ok()) else {
            continue;
        };
        let is_instruction = text("type").as_deref() == Some("Instruction");
        let shared = read_list(&index.join("shared_cpu_list"));
        // A list without the CPU itself says nothing about it.
        let shared = shared
            .filter(|list| list.contains(&cpu))
            .unwrap_or_default();
        let lowest = shared
            .into_iter()
            .find(|cpu| online.is_none_or(|online| online.contains(cpu)))
            .unwrap_or(cpu);
        caches.entry((level, is_instruction)).or_insert(GroupFacts {
            key: lowest as u64,
            os_id: text("id").and_then(|id| id.parse().ok()),
            size_bytes: text("size").and_then(|size| parse_size(&size)),
        });
    }
    caches
}

/// The numbers `N` of the entries `prefixN` in a folder, ascending.
pub(crate) fn numbered_entries(dir: &Path, prefix: &str) -> impl Iterator<Item = u32> + use<> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(prefix));
        numbers.extend(number.and_then(|number| number.parse::<u32>().ok()));
    }
    numbers.sort_unstable();
    numbers.into_iter()
}

pub(crate) fn read_text(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    // Some recorders add a zero byte.
    let is_around = |c: char| c.is_whitespace() || c == '\0';
    Some(text.trim_matches(is_around).to_owned())
}

/// A list of CPUs; where it is missing or spoilt, as in old recordings, the mask that says the same in
/// a file of another name.
pub(crate) fn read_list(path: &Path) -> Option<Vec<usize>> {
    if let Some(cpus) = read_text(path).and_then(|list| parse_cpu_list(&list)) {
        return Some(cpus);
    }
    let name = path.file_name()?.to_str()?;
    let mask = match name.strip_suffix("_list") {
        Some("shared_cpu") => "shared_cpu_map",
        Some(mask) => mask,
        None if name == "cpulist" => "cpumap",
        None => return None,
    };
    parse_mask(&read_text(&path.with_file_name(mask))?)
}

/// `00000001,ffff0000`: words of 32 bits, the highest first.
fn parse_mask(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for (nth, word) in text.rsplit(',').enumerate() {
        let word = u32::from_str_radix(word.trim(), 16).ok()?;
        let ids = (0..32).filter(|bit| word >> bit & 1 == 1);
        cpus.extend(ids.map(|bit| nth * 32 + bit));
    }
    Some(cpus)
}

/// `MemTotal:  16 kB`, with or without `Node 0` before it.
pub(crate) fn meminfo_bytes(text: &str, key: &str) -> Option<u64> {
    let mut words = text
        .lines()
        .find(|line| line.contains(key))?
        .split_whitespace();
    words.find(|&word| word == key)?;
    words.next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// `512K`, `32M`, or plain bytes.
fn parse_size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match &text[digits.len()..] {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_lists_too() {
        assert_eq!(parse_mask("f"), Some(vec![0, 1, 2, 3]));
        assert_eq!(parse_mask("00000001,80000000\n"), Some(vec![31, 32]));
        assert_eq!(parse_mask("0"), Some(Vec::new()));
        assert_eq!(parse_mask("x,1"), None);
        assert_eq!(parse_mask(""), None);
    }
}
