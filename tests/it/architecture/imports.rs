//! What a file names of the program's modules.

use super::Source;

/// The names of a module from the crate's root.
pub(super) type Module = Vec<String>;

/// Every path in a file's code that begins at the crate's root or with `super`, from the root.
pub(super) fn named(source: &Source) -> Vec<Module> {
    let code = source.code();
    let module = source.module();
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(place) = code[from..].find("::").map(|place| from + place) {
        from = place + 2;
        let start = code[..place].rfind(|letter: char| !is_of_name(letter)).map_or(0, |before| before + 1);
        let base = match &code[start..place] {
            _ if code[..start].ends_with("::") => continue,
            "crate" => Vec::new(),
            "super" => {
                let mut above = module.len() - 1;
                while let Some(rest) = code[from..].strip_prefix("super::") {
                    above = above.saturating_sub(1);
                    from = code.len() - rest.len();
                }
                module[..above].to_vec()
            }
            _ => continue,
        };
        found.extend(paths(&code[from..]).into_iter().map(|path| [base.clone(), path].concat()));
    }
    found
}

fn is_of_name(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// The paths at the start of a text: one, or those of a group in braces.
fn paths(text: &str) -> Vec<Module> {
    let text = text.trim_start();
    if let Some(group) = text.strip_prefix('{') {
        return items(group).into_iter().flat_map(paths).collect();
    }
    let end = text.find(|letter: char| !is_of_name(letter)).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let below = rest.strip_prefix("::").map(paths).unwrap_or_default();
    if below.is_empty() {
        return vec![vec![name.to_owned()]];
    }
    below.into_iter().map(|path| [vec![name.to_owned()], path].concat()).collect()
}

/// What stands between the commas of a group, to its closing brace.
fn items(group: &str) -> Vec<&str> {
    let (mut depth, mut start, mut found) = (0_usize, 0, Vec::new());
    for (place, letter) in group.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 0 => {
                found.push(&group[start..place]);
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                found.push(&group[start..place]);
                start = place + 1;
            }
            _ => {}
        }
    }
    found.retain(|item| !item.trim().is_empty());
    found
}
