//! Texts of several authorities in PEM, such as a `caBundle`.
//!
//! Entry points: [`union`], [`holds`]. Invariant: an authority is its block, whatever stands between blocks. Must not
//! judge whether a block is a certificate.

use std::collections::HashSet;

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// The certificates in `text`, each from its first line to its last.
pub(super) fn blocks(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(END).filter_map(|part| {
        let block = part.find(BEGIN).and_then(|start| part.get(start..))?;
        block.ends_with(END).then_some(block)
    })
}

/// Each authority of these texts once, in their order.
pub fn union<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let mut met = HashSet::new();
    let all = texts.into_iter().flat_map(blocks).filter(|block| met.insert(*block));
    all.flat_map(|block| [block, "\n"]).collect()
}

/// Whether `bundle` has all authorities of `text`, and there is one.
pub fn holds(bundle: &str, text: &str) -> bool {
    let known: HashSet<&str> = blocks(bundle).collect();
    let mut wanted = blocks(text).peekable();
    wanted.peek().is_some() && wanted.all(|block| known.contains(block))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pem(name: &str) -> String {
        format!("{BEGIN}\n{name}\n{END}\n")
    }

    #[test]
    fn union_has_each_authority_once_and_no_other_text() {
        let (one, two) = (pem("one"), pem("two"));
        let commented = format!("# the old one\n{one}# the new one\n{two}rest");
        assert_eq!(union([two.as_str(), commented.as_str()]), format!("{two}{one}"));
        assert_eq!(union(["no certificate", ""]), "");
        assert!(holds(&commented, &two) && holds(&commented, &format!("{two}{one}")));
        assert!(!holds(&one, &commented) && !holds(&one, "no certificate"));
        // A text that ends in the middle of a certificate.
        assert_eq!(union([format!("{one}{BEGIN}\nthr").as_str()]), one);
    }
}
