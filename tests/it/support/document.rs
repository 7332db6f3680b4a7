//! The project's documentation, as tests read it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::shell::{Statement, statements};

/// A Markdown file of the project.
pub(crate) struct Document {
    /// From the package's root, such as `docs/verdict.md`.
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

/// A fence of a page.
pub(crate) struct Block {
    /// The heading above it.
    pub(crate) heading: String,
    pub(crate) language: String,
    pub(crate) text: String,
}

impl Document {
    pub(crate) fn named(path: &str) -> Self {
        Self { path: PathBuf::from(path), text: fs::read_to_string(root().join(path)).unwrap() }
    }

    /// The lines within fences of a language, and outside of all fences.
    pub(crate) fn parts(&self, language: &str) -> (Vec<&str>, Vec<&str>) {
        let (mut fence, mut inside, mut outside) = (None, Vec::new(), Vec::new());
        for line in self.text.lines() {
            match (fence, line.trim_start().strip_prefix("```")) {
                (None, Some(info)) => fence = Some(info.trim()),
                (Some(_), Some(_)) => fence = None,
                (None, None) => outside.push(line),
                (Some(info), None) if info == language => inside.push(line),
                (Some(_), None) => {}
            }
        }
        assert!(fence.is_none(), "{} ends within a fence", self.path.display());
        (inside, outside)
    }

    /// Its fences.
    pub(crate) fn blocks(&self) -> Vec<Block> {
        let (mut heading, mut open, mut blocks) = (String::new(), None::<Block>, Vec::new());
        for line in self.text.lines() {
            match (open.as_mut(), line.trim_start().strip_prefix("```")) {
                (None, Some(language)) => {
                    let language = language.trim().to_owned();
                    open = Some(Block { heading: heading.clone(), language, text: String::new() });
                }
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (Some(block), None) => block.text.extend([line, "\n"]),
                (None, None) if line.starts_with('#') => line.clone_into(&mut heading),
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{} ends within a fence", self.path.display());
        blocks
    }

    /// The texts of its fences of one language.
    pub(crate) fn fences(&self, language: &str) -> Vec<String> {
        let blocks = self.blocks().into_iter().filter(|block| block.language == language);
        blocks.map(|block| block.text).collect()
    }

    /// The commands of its console fences.
    pub(crate) fn commands(&self) -> Vec<Statement> {
        self.fences("console").iter().flat_map(|text| statements(text)).collect()
    }

    /// The files that its fences hold: their first line names them, as in `# values.yaml`.
    pub(crate) fn files(&self) -> BTreeMap<String, Value> {
        let file = |text: String| {
            let name = text.lines().next()?.strip_prefix("# ")?.to_owned();
            let value = serde_saphyr::from_str(&text).ok()?;
            name.ends_with(".yaml").then_some((name, value))
        };
        self.fences("yaml").into_iter().filter_map(file).collect()
    }

    /// What stands in backticks outside of fences.
    pub(crate) fn code(&self) -> Vec<String> {
        let text = self.parts("").1.join("\n");
        text.split('`').skip(1).step_by(2).map(|span| span.replace('\n', " ")).collect()
    }

    /// The rows of the table under a heading, without its head.
    pub(crate) fn table(&self, heading: &str) -> Vec<Vec<String>> {
        let lines = self.parts("").1;
        let mut rows = lines
            .into_iter()
            .skip_while(|line| *line != heading)
            .skip(1)
            .skip_while(|line| !line.starts_with('|'))
            .take_while(|line| line.starts_with('|'));
        assert!(rows.next().is_some(), "{} has no table under {heading}", self.path.display());
        let cells = |row: &str| {
            row.trim_matches('|')
                .replace("| |", "|  |")
                // Those of which the first pass has taken a bar.
                .replace("| |", "|  |")
                .split(" | ")
                .map(|cell| cell.trim().to_owned())
                .collect::<Vec<_>>()
        };
        rows.skip(1).map(cells).collect()
    }

    /// The names by which other pages point to the headings.
    pub(crate) fn anchors(&self) -> BTreeSet<String> {
        let headings = self.parts("").1.into_iter().filter(|line| line.starts_with('#'));
        let slug = |heading: &str| {
            let text = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
            text.chars().filter(|letter| letter.is_alphanumeric() || "-_".contains(*letter)).collect()
        };
        headings.map(slug).collect()
    }
}

/// The package's root.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every page of the documentation.
pub(crate) fn documents() -> Vec<Document> {
    let mut found = Vec::new();
    for folder in ["", "docs", "docs/decisions", "deploy", "certs", "policies", "fuzz"] {
        for entry in fs::read_dir(root().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "md") {
                found.push(Document::named(path.strip_prefix(root()).unwrap().to_str().unwrap()));
            }
        }
    }
    assert!(found.len() > 8, "the documentation is gone");
    found
}

/// The names in backticks of one cell.
pub(crate) fn names(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}
