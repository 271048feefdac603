//! The kernel's way to write a set of CPUs: `0-3,8,10-11`.

/// Above any CPU id of any kernel; keeps `0-99999999999` from eating the memory.
const ID_LIMIT: usize = 1 << 20;

/// Reads a list as the kernel writes it, such as `0-3,8`, into ascending ids.
///
/// White space around the list and its parts is allowed, and the empty list is a list. Gives
/// `None` for anything else, and for ids of a million and more.
///
/// # Examples
///
/// ```
/// use windlass_topology::parse_cpu_list;
///
/// assert_eq!(parse_cpu_list("8,0-3\n"), Some(vec![0, 1, 2, 3, 8]));
/// assert_eq!(parse_cpu_list("3-0"), None);
/// ```
#[must_use]
pub fn parse_cpu_list(list: &str) -> Option<Vec<usize>> {
    let mut ids = Vec::new();
    if list.trim().is_empty() {
        return Some(ids);
    }
    for part in list.split(',') {
        let part = part.trim();
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (parse_id(first)?, parse_id(last)?);
        if first > last {
            return None;
        }
        ids.extend(first..=last);
    }
    ids.sort_unstable();
    ids.dedup();
    Some(ids)
}

/// Writes ascending ids as the kernel does: runs become ranges.
///
/// # Examples
///
/// ```
/// use windlass_topology::format_cpu_list;
///
/// assert_eq!(format_cpu_list(&[0, 1, 2, 8, 10, 11]), "0-2,8,10-11");
/// ```
#[must_use]
pub fn format_cpu_list(ids: &[usize]) -> String {
    let mut parts = Vec::new();
    let mut rest = ids;
    while let Some(&first) = rest.first() {
        let run = rest
            .iter()
            .zip(first..)
            .take_while(|&(&id, expected)| id == expected)
            .count();
        let last = rest[run - 1];
        parts.push(if run == 1 {
            first.to_string()
        } else {
            format!("{first}-{last}")
        });
        rest = &rest[run..];
    }
    parts.join(",")
}

fn parse_id(text: &str) -> Option<usize> {
    let text = text.trim();
    // `parse` would take a plus sign, the kernel never writes one.
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().filter(|&id| id < ID_LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_survive_a_round_trip() {
        for list in ["", "0", "0-3", "0,2,4", "1-2,5-9,1000"] {
            assert_eq!(format_cpu_list(&parse_cpu_list(list).unwrap()), list);
        }
        assert_eq!(parse_cpu_list(" 3 , 1-2\n").unwrap(), [1, 2, 3]);
        assert_eq!(parse_cpu_list("1-3,2-4").unwrap(), [1, 2, 3, 4]);
    }

    #[test]
    fn nonsense_is_refused() {
        for list in [
            "a",
            "1-",
            "-1",
            "1,,2",
            "3-1",
            "0-99999999999",
            "+1",
            "1-2-3",
            ",",
        ] {
            assert_eq!(parse_cpu_list(list), None, "{list:?}");
        }
    }
}
