//! Addresses of pages: what is asked for stands in the query, so that every view can be linked to.
//!
//! Entry points: [`Asked`] to read one, [`Link`] to write one. Invariant: whatever a name holds, it stays one
//! value of the query.

use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequestParts, Query};
use http::request::Parts;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use kubemoor_declare::model::ReleaseId;

/// The name in the address of a stream of a namespace that is followed too, and the most of them.
pub(super) const ALSO: &str = "also";
pub(super) const FOLLOWED: usize = 50;

/// What an address asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Asked(Vec<(String, String)>);

/// An address within the page, relative to where all pages lie.
#[derive(Clone, Debug)]
pub(super) struct Link {
    page: &'static str,
    pairs: Vec<(String, String)>,
}

/// What of a cluster's is shown; `None` stands for all.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    pub(super) cluster: Option<&'a str>,
    pub(super) namespace: Option<&'a str>,
}

impl Place<'_> {
    /// The address of a page that shows it.
    pub(super) fn link(self, page: &'static str) -> Link {
        Link::to(page).set("cluster", self.cluster).set("namespace", self.namespace)
    }
}

impl Asked {
    /// What the pairs of a query or of a form ask for. Empty values ask for nothing.
    pub(super) fn of(mut pairs: Vec<(String, String)>) -> Self {
        pairs.retain(|(_, value)| !value.trim().is_empty());
        Self(pairs)
    }

    /// The value of a name; the first, where there are several.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.trim())
    }

    /// All values of a name.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.trim())
    }

    /// The page of a list with so many entries that a number asks for, and how many pages the list has.
    pub(super) fn page(&self, name: &str, entries: usize, size: usize) -> (usize, usize) {
        let pages = entries.div_ceil(size).max(1);
        let page = self.get(name).and_then(|page| page.parse().ok()).unwrap_or(1).clamp(1, pages);
        (page, pages)
    }

    /// The release that is named.
    pub(super) fn release(&self) -> Option<ReleaseId> {
        Some(ReleaseId { namespace: self.get("namespace")?.into(), name: self.get("name")?.into() })
    }

    /// The address of `page` that asks for the same.
    pub(super) fn link(&self, page: &'static str) -> Link {
        Link { page, pairs: self.0.clone() }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Asked {
    type Rejection = QueryRejection;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, QueryRejection> {
        Query::from_request_parts(parts, state).await.map(|Query(pairs)| Self::of(pairs))
    }
}

impl Link {
    /// The address of a page.
    pub(super) fn to(page: &'static str) -> Self {
        Self { page, pairs: Vec::new() }
    }

    /// The page of a release.
    pub(super) fn to_release(cluster: &str, release: &ReleaseId) -> Self {
        Self::to("release").with("cluster", cluster).of_release(release)
    }

    /// The same with the names of a release.
    pub(super) fn of_release(self, release: &ReleaseId) -> Self {
        self.with("namespace", &release.namespace).with("name", &release.name)
    }

    /// The same with one more value.
    pub(super) fn with(mut self, name: &str, value: &str) -> Self {
        self.pairs.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same with this as the only value of a name; `None` for no value.
    pub(super) fn set(mut self, name: &str, value: Option<&str>) -> Self {
        self.pairs.retain(|(known, _)| known != name);
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// The address.
    pub(super) fn text(&self) -> String {
        let pairs: Vec<_> =
            self.pairs.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect();
        // An empty reference would keep the query of the page that it stands in.
        let page = if self.page.is_empty() { "./" } else { self.page };
        if pairs.is_empty() { page.to_owned() } else { format!("{page}?{}", pairs.join("&")) }
    }
}

/// A text as letters, digits and percent signs.
pub(super) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_name_holds_stays_one_value() {
        let odd = "a&b=c#d/e?f \"<g>";
        let text = Link::to("release").with("cluster", odd).with("name", "web").text();
        let url: http::Uri = format!("http://localhost/{text}").parse().unwrap();
        let pairs: Vec<_> =
            url.query().unwrap().split('&').map(|pair| pair.split_once('=').unwrap()).collect();
        assert_eq!(pairs.len(), 2);
        let decoded = percent_encoding::percent_decode_str(pairs[0].1).decode_utf8().unwrap();
        assert_eq!((pairs[0].0, &*decoded), ("cluster", odd));
        assert_eq!(Link::to("").text(), "./");
    }

    #[test]
    fn number_of_page_stays_within_its_list() {
        let asked = |page: &str| Asked::of(vec![("page".into(), page.into())]);
        for (page, entries, expected) in [
            ("", 0, (1, 1)),
            ("7", 0, (1, 1)),
            ("1", 100, (1, 1)),
            ("2", 101, (2, 2)),
            ("0", 101, (1, 2)),
            ("99", 101, (2, 2)),
            ("-1", 101, (1, 2)),
            ("x", 101, (1, 2)),
        ] {
            assert_eq!(asked(page).page("page", entries, 100), expected, "{page} of {entries}");
        }
    }

    #[test]
    fn a_value_is_replaced_or_left_out() {
        let asked =
            Asked::of(vec![("page".into(), "2".into()), ("q".into(), " ".into()), ("q".into(), "a".into())]);
        assert_eq!(asked.get("q"), Some("a"));
        assert_eq!(asked.link("releases").set("page", Some("3")).text(), "releases?q=a&page=3");
        assert_eq!(asked.link("releases").set("page", None).text(), "releases?q=a");
    }
}
