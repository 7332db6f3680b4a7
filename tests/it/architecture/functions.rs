//! The length of functions, of tests, benchmarks and fuzz targets too.

use super::sources;

/// The most lines of a function, from its `fn` to its closing brace.
const LINES: usize = 60;

/// The functions of a file and how many lines each has, as rustfmt lays them out.
fn functions(text: &str) -> Vec<(String, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let Some(name) = name(line) else { continue };
        let indent = &line[..line.len() - line.trim_start().len()];
        let signature = lines[start..].iter().position(|line| line.ends_with(['{', '}', ';']));
        let head = signature.map_or(line, |last| &lines[start + last]);
        // A function without a body, or with one on the line of its signature.
        if !head.ends_with('{') {
            continue;
        }
        let end = lines[start..].iter().position(|line| *line == format!("{indent}}}"));
        found.push((name.to_owned(), end.map_or(lines.len(), |end| end + 1)));
    }
    found
}

/// The name of the function that begins on this line.
fn name(line: &str) -> Option<&str> {
    let (before, rest) = line.split_once("fn ")?;
    let is_qualified = before.split_whitespace().all(|word| {
        ["async", "const", "unsafe", "in"].contains(&word) || word.starts_with("pub") || word.ends_with(')')
    });
    let name = rest.split(|letter: char| !(letter.is_alphanumeric() || letter == '_')).next()?;
    (is_qualified && !name.is_empty()).then_some(name)
}

#[test]
fn no_function_has_more_than_sixty_lines() {
    let mut long = Vec::new();
    for source in ["src", "tests", "benches", "examples", "fuzz/fuzz_targets"].into_iter().flat_map(sources) {
        let functions = functions(&source.text).into_iter().filter(|(_, lines)| *lines > LINES);
        long.extend(functions.map(|(name, lines)| format!("{}: {name}: {lines}", source.path.display())));
    }
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn lines_of_functions_are_counted_from_signature_to_brace() {
    let text = "pub(crate) async fn a(\n    b: u8,\n) {\n    // fn c() {}\n}\n\
                impl D {\n    fn e() {}\n    fn f();\n    fn g() {\n        h();\n    }\n}\n";
    assert_eq!(functions(text), [("a".to_owned(), 5), ("g".to_owned(), 3)]);
}
