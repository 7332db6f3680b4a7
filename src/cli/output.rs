//! How results are printed: tables, JSON, YAML, kubectl's `-o jsonpath=` templates with RFC 9535 paths, and reports
//! from templates.
//!
//! Colours are used only on a terminal, and not if `NO_COLOR` is set. Text from the cluster is escaped, so that it
//! cannot send control sequences to the terminal. A closed output is not an error.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::marker::PhantomData;
use std::str::FromStr;

use anstyle::{AnsiColor, Style};
use anyhow::Context;
use clap::builder::{
    PossibleValue, PossibleValuesParser, StringValueParser, TypedValueParser, ValueParserFactory,
};
use clap::{Arg, Command, ValueEnum};
use jiff::Timestamp;
use jsonpath_rust::parser::model::JpQuery;
use jsonpath_rust::parser::parse_json_path;
use jsonpath_rust::query::js_path_process;
use minijinja::Environment;
use minijinja::value::Serde;
use serde::Serialize;
use serde_json::Value;

use super::CommandOutcome;
use kubemoor_declare::model::text::{escaped, escaped_json, is_unprintable};

const JSON_PATH: &str = "jsonpath=";

/// The flag that chooses the [`OutputFormat`].
#[derive(Clone, Debug, clap::Args)]
pub(super) struct OutputArgs {
    /// Output format
    #[arg(long, short, value_name = "FORMAT", default_value = "table")]
    pub(super) output: OutputFormat<TableOnly>,
}

/// The format of a command's output; `P` are the command's formats for people.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum OutputFormat<P> {
    People(P),
    Data(Data),
}

/// The human-readable format that most commands have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum TableOnly {
    /// For people
    Table,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Data {
    Json,
    Yaml,
    JsonPath(JsonPathTemplate),
}

/// Parses an [`OutputFormat`].
#[derive(Clone, Debug)]
pub(super) struct FormatParser<P>(PhantomData<P>);

/// For a good state, and for added text.
pub(super) const GOOD: Style = AnsiColor::Green.on_default();
/// For a bad state, and for removed text.
pub(super) const BAD: Style = AnsiColor::Red.on_default();
/// For a state that needs attention.
pub(super) const NOTE: Style = AnsiColor::Yellow.on_default();
pub(super) const HEAD: Style = Style::new().bold();
pub(super) const PLAIN: Style = Style::new();

impl Data {
    pub(super) fn text<T: Serialize>(&self, answer: &T) -> anyhow::Result<String> {
        match self {
            Self::Json => {
                let json = serde_json::to_string_pretty(answer).context("cannot write the answer as JSON")?;
                Ok(escaped_json(json) + "\n")
            }
            Self::Yaml => {
                let yaml = serde_saphyr::to_string(answer).context("cannot write the answer as YAML")?;
                // A plain YAML scalar cannot escape control characters; JSON can, and is valid YAML.
                let is_odd = |letter| is_unprintable(letter) && !matches!(letter, '\n' | '\t');
                if yaml.contains(is_odd) { Self::Json.text(answer) } else { Ok(yaml) }
            }
            Self::JsonPath(template) => {
                template.fill(&serde_json::to_value(answer).context("cannot write the answer as JSON")?)
            }
        }
    }

    /// One of several results that are printed one after another, as a document of its own.
    pub(super) fn part<T: Serialize>(&self, answer: &T) -> anyhow::Result<String> {
        let text = self.text(answer)?;
        Ok(match self {
            Self::Json => text,
            Self::Yaml => format!("---\n{}\n", text.trim_end()),
            Self::JsonPath(_) if text.ends_with('\n') => text,
            Self::JsonPath(_) => text + "\n",
        })
    }

    pub(super) fn print<T: Serialize>(&self, answer: &T) -> anyhow::Result<CommandOutcome> {
        write(&self.text(answer)?)
    }
}

impl<P: ValueEnum + Send + Sync + 'static> ValueParserFactory for OutputFormat<P> {
    type Parser = FormatParser<P>;

    fn value_parser() -> FormatParser<P> {
        FormatParser(PhantomData)
    }
}

impl<P: ValueEnum + Send + Sync + 'static> TypedValueParser for FormatParser<P> {
    type Value = OutputFormat<P>;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<OutputFormat<P>, clap::Error> {
        if value.to_str().is_some_and(|text| text.starts_with(JSON_PATH)) {
            let template =
                |text: String| text.strip_prefix(JSON_PATH).unwrap_or_default().parse::<JsonPathTemplate>();
            let template = StringValueParser::new().try_map(template).parse_ref(command, argument, value)?;
            return Ok(OutputFormat::Data(Data::JsonPath(template)));
        }
        let named = |name: String| match name.as_str() {
            "json" => Ok(OutputFormat::Data(Data::Json)),
            "yaml" => Ok(OutputFormat::Data(Data::Yaml)),
            name => P::from_str(name, false).map(OutputFormat::People),
        };
        PossibleValuesParser::new(all::<P>()).try_map(named).parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(all::<P>()))
    }
}

fn all<P: ValueEnum + 'static>() -> impl Iterator<Item = PossibleValue> {
    let people = P::value_variants().iter().filter_map(ValueEnum::to_possible_value);
    people.chain([
        PossibleValue::new("json").help("For programs"),
        PossibleValue::new("yaml").help("The same as YAML"),
        PossibleValue::new(JSON_PATH)
            .help("For scripts: the parts of the JSON that a template selects, as with kubectl"),
    ])
}

/// Text for people, with colours. Control characters in inserted data are shown in escaped form.
#[derive(Debug, Default)]
pub(super) struct StyledText(String);

/// A table as kubectl prints it: each column is as wide as its widest cell.
#[derive(Debug, Default)]
pub(super) struct Table {
    rows: Vec<Vec<(String, Style)>>,
    least: Vec<usize>,
}

impl StyledText {
    pub(super) fn add(&mut self, style: Style, text: &str) -> &mut Self {
        let text = escaped(text);
        // Writing to a String cannot fail.
        let _ =
            if style == PLAIN { self.0.write_str(&text) } else { write!(self.0, "{style}{text}{style:#}") };
        self
    }

    pub(super) fn line(&mut self) -> &mut Self {
        self.0.push('\n');
        self
    }

    pub(super) fn append(&mut self, other: &Self) -> &mut Self {
        self.0.push_str(&other.0);
        self
    }

    /// The text with its colour sequences.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl Table {
    pub(super) fn new<'h>(head: impl IntoIterator<Item = &'h str>) -> Self {
        let mut table = Self::default();
        table.row(head);
        table
    }

    /// A table without a header, whose columns are at least this wide.
    pub(super) fn with_min_widths(widths: &[usize]) -> Self {
        Self { rows: Vec::new(), least: widths.to_vec() }
    }

    pub(super) fn widths(&self) -> Vec<usize> {
        let columns = self.rows.iter().map(Vec::len).chain([self.least.len()]).max().unwrap_or_default();
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            let widest = cells.map(|(text, _)| text.chars().count()).max().unwrap_or_default();
            widest.max(self.least.get(column).copied().unwrap_or_default())
        };
        (0..columns).map(width).collect()
    }

    pub(super) fn row<C: Into<String>>(&mut self, cells: impl IntoIterator<Item = C>) -> &mut Self {
        self.styled(cells.into_iter().map(|cell| (cell.into(), PLAIN)))
    }

    pub(super) fn styled(&mut self, cells: impl IntoIterator<Item = (String, Style)>) -> &mut Self {
        self.rows.push(cells.into_iter().map(|(text, style)| (escaped(&text).into_owned(), style)).collect());
        self
    }

    pub(super) fn text(&self) -> StyledText {
        let widths = self.widths();
        let mut lines = StyledText::default();
        for row in &self.rows {
            for (place, ((text, style), width)) in row.iter().zip(&widths).enumerate() {
                lines.add(*style, text);
                if place + 1 < row.len() {
                    let gap = width.saturating_sub(text.chars().count()) + 3;
                    lines.add(PLAIN, &" ".repeat(gap));
                }
            }
            while lines.0.ends_with(' ') {
                lines.0.pop();
            }
            lines.line();
        }
        lines
    }
}

/// Prints a result in a format; `table` renders the one for people.
pub(super) fn print<T: Serialize>(
    form: &OutputFormat<TableOnly>,
    answer: &T,
    table: impl FnOnce() -> StyledText,
) -> anyhow::Result<CommandOutcome> {
    match form {
        OutputFormat::People(TableOnly::Table) => write(table().as_str()),
        OutputFormat::Data(data) => data.print(answer),
    }
}

/// Writes to standard output, with colours only on a terminal. A closed pipe (`| head`) is not an error.
pub(super) fn write(text: &str) -> anyhow::Result<CommandOutcome> {
    stream(text).map(|_| CommandOutcome::Clean)
}

pub(super) fn stream(text: &str) -> anyhow::Result<bool> {
    let mut out = anstream::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(anyhow::Error::new(error).context("cannot write to standard output")),
    }
}

/// Prints a result in a format; the one for people is `text`.
pub(super) fn print_text<T: Serialize>(
    form: &OutputFormat<TableOnly>,
    answer: &T,
    text: &str,
) -> anyhow::Result<CommandOutcome> {
    print(form, answer, || {
        let mut lines = StyledText::default();
        for line in text.lines() {
            lines.add(PLAIN, line).line();
        }
        lines
    })
}

pub(super) fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A number and what it counts: `1 object`, `2 objects`.
pub(super) fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Renders a report from a template. If its name (`form`) ends in `.html` or `.xml`, values are escaped.
pub(super) fn render<T: Serialize>(form: &str, template: &str, report: T) -> anyhow::Result<String> {
    let mut environment = Environment::new();
    environment.add_filter("printable", printable);
    environment.add_filter("markdown", markdown);
    let text =
        environment.render_named_str(form, template, Serde(report)).context("cannot write the report")?;
    Ok(text + "\n")
}

/// Replaces characters that XML does not allow or that are not printable.
fn printable(text: &str) -> String {
    let is_lost = |letter: char| {
        matches!(letter, '\u{fffe}' | '\u{ffff}') || is_unprintable(letter) && !"\t\n\r".contains(letter)
    };
    text.replace(is_lost, "\u{fffd}")
}

/// Escapes text, so that Markdown renders it literally.
fn markdown(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for (place, letter) in text.char_indices() {
        let (before, after) = text.split_at_checked(place).unwrap_or_default();
        let follows = |scheme: &str| before.to_ascii_lowercase().ends_with(scheme);
        match letter {
            letter if is_unprintable(letter) => plain.push(' '),
            '<' => plain.push_str("&lt;"),
            '>' => plain.push_str("&gt;"),
            '&' => plain.push_str("&amp;"),
            // `@` alone turns an address into a link.
            '@' => plain.push_str("&#64;"),
            ':' if after.starts_with("://") || follows("mailto") || follows("xmpp") => {
                plain.push_str("&#58;")
            }
            '.' if follows("www") => plain.push_str("&#46;"),
            '\\' | '`' | '*' | '_' | '{' | '}' | '[' | ']' | '(' | ')' | '#' | '!' | '|' | '~' | '$' => {
                plain.push('\\');
                plain.push(letter);
            }
            letter => plain.push(letter),
        }
    }
    plain
}

/// A parsed template. A syntax error is reported before a cluster is contacted.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct JsonPathTemplate(Vec<TemplatePart>);

#[derive(Clone, Debug, PartialEq)]
enum TemplatePart {
    Text(String),
    Values(TemplatePath),
    Range(TemplatePath, Vec<TemplatePart>),
}

/// A path from the document's root or from the current value.
#[derive(Clone, Debug, PartialEq)]
struct TemplatePath {
    is_absolute: bool,
    query: JpQuery,
}

impl JsonPathTemplate {
    pub(super) fn fill(&self, document: &Value) -> anyhow::Result<String> {
        let mut text = String::new();
        fill(&self.0, document, document, &mut text)?;
        Ok(text)
    }
}

fn fill(parts: &[TemplatePart], root: &Value, current: &Value, text: &mut String) -> anyhow::Result<()> {
    for part in parts {
        match part {
            TemplatePart::Text(words) => text.push_str(words),
            TemplatePart::Values(path) => {
                let values = path.values(root, current)?;
                let shown = values.into_iter().map(|value| match value {
                    Value::String(value) => escaped(value).into_owned(),
                    other => escaped_json(other.to_string()),
                });
                text.push_str(&shown.collect::<Vec<_>>().join(" "));
            }
            TemplatePart::Range(path, below) => {
                for value in path.values(root, current)? {
                    fill(below, root, value, text)?;
                }
            }
        }
    }
    Ok(())
}

impl FromStr for JsonPathTemplate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unpaired = || "each {range PATH} needs one {end}, and ranges cannot be nested: use -o json | jq";
        let mut parts = Vec::new();
        // The open range, and the parts before it.
        let mut open: Option<(TemplatePath, Vec<TemplatePart>)> = None;
        let mut rest = text;
        while let Some((words, after)) = rest.split_once('{') {
            let (action, after) = after
                .split_once('}')
                .ok_or_else(|| format!("{:?} is not closed: it needs a }}", format!("{{{after}")))?;
            rest = after;
            parts.push(TemplatePart::Text(words.to_owned()));
            let action = action.trim();
            if let Some(path) = action.strip_prefix("range ") {
                if open.is_some() {
                    return Err(unpaired().to_owned());
                }
                open = Some((path.parse()?, std::mem::take(&mut parts)));
            } else if action == "end" {
                let (path, before) = open.take().ok_or_else(unpaired)?;
                let below = std::mem::replace(&mut parts, before);
                parts.push(TemplatePart::Range(path, below));
            } else if action.starts_with(['"', '\'']) {
                parts.push(TemplatePart::Text(unquoted(action)?));
            } else {
                parts.push(TemplatePart::Values(action.parse()?));
            }
        }
        if open.is_some() {
            return Err(unpaired().to_owned());
        }
        if parts.is_empty() {
            return Err("it has no {}: write a path in braces, such as {.items[*].name}".to_owned());
        }
        parts.push(TemplatePart::Text(rest.to_owned()));
        Ok(Self(parts))
    }
}

/// Parses a quoted string with JSON's escapes.
fn unquoted(action: &str) -> Result<String, String> {
    let single = action.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
    let json = single.map_or_else(|| action.to_owned(), |text| format!("\"{text}\""));
    serde_json::from_str(&json).map_err(|_| format!("{action} is not a quoted string, such as {{\"\\n\"}}"))
}

impl FromStr for TemplatePath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let below = text.trim_start_matches(['$', '@']);
        let wrong = || format!("{text:?} is not a path, such as .items[*].name or .items[*]['a name']");
        if text.is_empty() || !(below.is_empty() || below.starts_with(['.', '['])) {
            return Err(wrong());
        }
        // kubectl's notation for the current value.
        let below = if below == "." { "" } else { below };
        let query = parse_json_path(&format!("${below}")).map_err(|_| wrong())?;
        Ok(Self { is_absolute: text.starts_with('$'), query })
    }
}

impl TemplatePath {
    fn values<'v>(&self, root: &'v Value, current: &'v Value) -> anyhow::Result<Vec<&'v Value>> {
        let from = if self.is_absolute { root } else { current };
        let found = js_path_process(&self.query, from).context("cannot evaluate the path")?;
        Ok(found.into_iter().map(|found| found.val).collect())
    }
}

#[cfg(test)]
mod tests;
