//! The order of a file: types before what they do, public functions before private ones.

use super::sources;

/// What stands at the beginning of a line, as far as the order is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Item {
    Type,
    Impl,
    PublicFunction,
    PrivateFunction,
}

/// The item that begins with this line, at `indent`.
fn item(line: &str, indent: &str) -> Option<Item> {
    let line = line.strip_prefix(indent).filter(|rest| !rest.starts_with(' '))?;
    let is_public = line.starts_with("pub");
    let words = line.split(|letter: char| !(letter.is_alphanumeric() || letter == '_'));
    let keyword = words.filter(|word| !word.is_empty()).find(|word| {
        !["pub", "crate", "super", "in", "self", "async", "const", "unsafe", "default"].contains(word)
    })?;
    match keyword {
        "struct" | "enum" | "trait" | "type" => Some(Item::Type),
        "impl" => Some(Item::Impl),
        "fn" if is_public => Some(Item::PublicFunction),
        "fn" => Some(Item::PrivateFunction),
        _ => None,
    }
}

/// The lines that stand below what should follow them.
fn misplaced(text: &str) -> Vec<usize> {
    let (mut found, mut before) = (Vec::new(), Vec::new());
    let mut methods: Option<Vec<Item>> = None;
    for (number, line) in text.lines().enumerate() {
        let late = if let Some(item) = item(line, "") {
            // The methods of a trait have their order from it.
            methods = (item == Item::Impl && !line.contains(" for ")).then(Vec::new);
            is_late(item, &mut before)
        } else if let (Some(methods), Some(item)) = (&mut methods, item(line, "    ")) {
            is_late(item, methods)
        } else {
            false
        };
        found.extend(late.then_some(number + 1));
    }
    found
}

/// Whether an item should stand before one of those `before` it, to which it is added.
fn is_late(item: Item, before: &mut Vec<Item>) -> bool {
    let follow: &[Item] = match item {
        Item::Type => &[Item::Impl, Item::PrivateFunction],
        Item::PublicFunction => &[Item::PrivateFunction],
        Item::Impl | Item::PrivateFunction => &[],
    };
    let is_late = before.iter().any(|earlier| follow.contains(earlier));
    before.push(item);
    is_late
}

#[test]
fn types_come_first_and_public_functions_before_private_ones() {
    for source in sources("src").iter().filter(|source| !source.is_test()) {
        let misplaced = misplaced(source.program());
        assert!(misplaced.is_empty(), "{}: lines {misplaced:?}", source.path.display());
    }
}

#[test]
fn misplaced_items_are_found() {
    let text =
        "fn a() {}\npub fn b() {}\nstruct C;\nimpl C {\n    fn d() {}\n    pub(crate) async fn e() {}\n}\n";
    assert_eq!(misplaced(text), [2, 3, 6]);
    assert_eq!(misplaced("pub(super) struct A;\nimpl D for A {\n    fn b() {}\n}\nfn c() {}\n"), [0; 0]);
}
