//! The memory budget for declared fields.
//!
//! Entry point: [`for_declarations`]. Invariant: half of the container's memory limit; the rest is for
//! requests and for reading records.

use std::fs;

/// The files that hold the container's memory limit, for cgroups of version 2 and 1.
const LIMITS: [&str; 2] = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];

/// More than any machine has: version 1 spells no limit so.
const NO_LIMIT: usize = 1 << 50;

/// The memory budget for declared fields in bytes; `None` where the container has no limit.
pub(super) fn for_declarations() -> Option<usize> {
    let texts = LIMITS.iter().filter_map(|path| fs::read_to_string(path).ok());
    texts.into_iter().find_map(|text| half(&text))
}

fn half(limit: &str) -> Option<usize> {
    limit.trim().parse().ok().filter(|limit| *limit < NO_LIMIT).map(|limit: usize| limit / 2)
}

#[cfg(test)]
mod tests {
    use super::half;

    #[test]
    fn half_of_a_limit_is_for_declarations() {
        assert_eq!(half("268435456\n"), Some(134_217_728));
        assert_eq!(half("max\n"), None);
        assert_eq!(half("9223372036854771712\n"), None);
    }
}
