//! Answers for people and for programs, and how they are printed.
//!
//! Colours go to a terminal only, and never where `NO_COLOR` is set. What comes from the cluster can write no control
//! sequence to the terminal. A closed output is not an error.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::marker::PhantomData;

use anstyle::{AnsiColor, Style};
use anyhow::Context;
use clap::builder::{
    PossibleValue, PossibleValuesParser, StringValueParser, TypedValueParser, ValueParserFactory,
};
use clap::{Arg, Command, ValueEnum};
use minijinja::Environment;
use minijinja::value::Serde;
use serde::Serialize;

use super::Outcome;
use super::jsonpath::Template;
use kubemoor_declare::model::text::{escaped, escaped_json, is_unprintable};

/// The prefix of a template.
const JSON_PATH: &str = "jsonpath=";

/// The flag that chooses the [`Form`].
#[derive(Clone, Debug, clap::Args)]
pub(super) struct OutputArgs {
    /// How the answer is printed
    #[arg(long, short, value_name = "FORMAT", default_value = "table")]
    pub(super) output: Form<People>,
}

/// The form of an answer; `P` are the forms for people that a command has.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Form<P> {
    /// For people.
    People(P),
    /// For programs.
    Data(Data),
}

/// The one form for people that most commands have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum People {
    /// For people
    Table,
}

/// A form for programs.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Data {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// A template that selects parts of the JSON.
    JsonPath(Template),
}

/// Reads a [`Form`].
#[derive(Clone, Debug)]
pub(super) struct FormParser<P>(PhantomData<P>);

/// For a good state, and for added text.
pub(super) const GOOD: Style = AnsiColor::Green.on_default();
/// For a bad state, and for removed text.
pub(super) const BAD: Style = AnsiColor::Red.on_default();
/// For a state that needs attention.
pub(super) const NOTE: Style = AnsiColor::Yellow.on_default();
/// A headline.
pub(super) const HEAD: Style = Style::new().bold();
/// Nothing special.
pub(super) const PLAIN: Style = Style::new();

impl Data {
    /// An answer in this form.
    pub(super) fn text<T: Serialize>(&self, answer: &T) -> anyhow::Result<String> {
        match self {
            Self::Json => {
                let json = serde_json::to_string_pretty(answer).context("cannot write the answer as JSON")?;
                Ok(escaped_json(json) + "\n")
            }
            Self::Yaml => {
                let yaml = serde_saphyr::to_string(answer).context("cannot write the answer as YAML")?;
                // A plain scalar has no escapes, and JSON is YAML.
                let is_odd = |letter| is_unprintable(letter) && !matches!(letter, '\n' | '\t');
                if yaml.contains(is_odd) { Self::Json.text(answer) } else { Ok(yaml) }
            }
            Self::JsonPath(template) => {
                template.fill(&serde_json::to_value(answer).context("cannot write the answer as JSON")?)
            }
        }
    }

    /// One of several answers that are printed one after another, as they come.
    pub(super) fn part<T: Serialize>(&self, answer: &T) -> anyhow::Result<String> {
        let text = self.text(answer)?;
        Ok(match self {
            Self::Json => text,
            Self::Yaml => format!("---\n{}\n", text.trim_end()),
            Self::JsonPath(_) if text.ends_with('\n') => text,
            Self::JsonPath(_) => text + "\n",
        })
    }

    /// Prints an answer.
    pub(super) fn print<T: Serialize>(&self, answer: &T) -> anyhow::Result<Outcome> {
        write(&self.text(answer)?)
    }
}

impl<P: ValueEnum + Send + Sync + 'static> ValueParserFactory for Form<P> {
    type Parser = FormParser<P>;

    fn value_parser() -> FormParser<P> {
        FormParser(PhantomData)
    }
}

impl<P: ValueEnum + Send + Sync + 'static> TypedValueParser for FormParser<P> {
    type Value = Form<P>;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<Form<P>, clap::Error> {
        if value.to_str().is_some_and(|text| text.starts_with(JSON_PATH)) {
            let template =
                |text: String| text.strip_prefix(JSON_PATH).unwrap_or_default().parse::<Template>();
            let template = StringValueParser::new().try_map(template).parse_ref(command, argument, value)?;
            return Ok(Form::Data(Data::JsonPath(template)));
        }
        let named = |name: String| match name.as_str() {
            "json" => Ok(Form::Data(Data::Json)),
            "yaml" => Ok(Form::Data(Data::Yaml)),
            name => P::from_str(name, false).map(Form::People),
        };
        PossibleValuesParser::new(all::<P>()).try_map(named).parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(all::<P>()))
    }
}

/// All forms that a command has.
fn all<P: ValueEnum + 'static>() -> impl Iterator<Item = PossibleValue> {
    let people = P::value_variants().iter().filter_map(ValueEnum::to_possible_value);
    people.chain([
        PossibleValue::new("json").help("For programs"),
        PossibleValue::new("yaml").help("For programs, and for people who prefer it"),
        PossibleValue::new(JSON_PATH)
            .help("For scripts: the parts of the JSON that a template selects, as with kubectl"),
    ])
}

/// Text for people, with colours. Control characters in inserted data are shown in escaped form.
#[derive(Debug, Default)]
pub(super) struct Text(String);

/// Rows as lines, each column as wide as its widest cell, as kubectl prints
/// them.
#[derive(Debug, Default)]
pub(super) struct Table {
    rows: Vec<Vec<(String, Style)>>,
    /// How wide columns are at least.
    least: Vec<usize>,
}

impl Text {
    /// Adds `text` in a style.
    pub(super) fn add(&mut self, style: Style, text: &str) -> &mut Self {
        let text = escaped(text);
        // Writing to a String cannot fail.
        let _ =
            if style == PLAIN { self.0.write_str(&text) } else { write!(self.0, "{style}{text}{style:#}") };
        self
    }

    /// Ends the line.
    pub(super) fn line(&mut self) -> &mut Self {
        self.0.push('\n');
        self
    }

    /// Adds other text as it is.
    pub(super) fn append(&mut self, other: &Self) -> &mut Self {
        self.0.push_str(&other.0);
        self
    }

    /// The text with its control sequences.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl Table {
    /// A table with this headline.
    pub(super) fn new<'h>(head: impl IntoIterator<Item = &'h str>) -> Self {
        let mut table = Self::default();
        table.row(head);
        table
    }

    /// A table without a headline, whose columns are at least this wide.
    pub(super) fn at_least(widths: &[usize]) -> Self {
        Self { rows: Vec::new(), least: widths.to_vec() }
    }

    /// How wide each column is.
    pub(super) fn widths(&self) -> Vec<usize> {
        let columns = self.rows.iter().map(Vec::len).chain([self.least.len()]).max().unwrap_or_default();
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            let widest = cells.map(|(text, _)| text.chars().count()).max().unwrap_or_default();
            widest.max(self.least.get(column).copied().unwrap_or_default())
        };
        (0..columns).map(width).collect()
    }

    /// Adds a row.
    pub(super) fn row<C: Into<String>>(&mut self, cells: impl IntoIterator<Item = C>) -> &mut Self {
        self.styled(cells.into_iter().map(|cell| (cell.into(), PLAIN)))
    }

    /// Adds a row of which each cell has its own style.
    pub(super) fn styled(&mut self, cells: impl IntoIterator<Item = (String, Style)>) -> &mut Self {
        self.rows.push(cells.into_iter().map(|(text, style)| (escaped(&text).into_owned(), style)).collect());
        self
    }

    /// The lines.
    pub(super) fn text(&self) -> Text {
        let widths = self.widths();
        let mut lines = Text::default();
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

/// Prints an answer in a form; `table` makes the one for people.
pub(super) fn print<T: Serialize>(
    form: &Form<People>,
    answer: &T,
    table: impl FnOnce() -> Text,
) -> anyhow::Result<Outcome> {
    match form {
        Form::People(People::Table) => write(table().as_str()),
        Form::Data(data) => data.print(answer),
    }
}

/// Writes to standard output: colours for a terminal only. A reader that went
/// away (`| head`) is no error.
pub(super) fn write(text: &str) -> anyhow::Result<Outcome> {
    stream(text).map(|_| Outcome::Clean)
}

/// Prints the text. Returns whether the output is still open.
pub(super) fn stream(text: &str) -> anyhow::Result<bool> {
    let mut out = anstream::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(anyhow::Error::new(error).context("cannot write to standard output")),
    }
}

/// Prints an answer in a form; for people it is `text`.
pub(super) fn say<T: Serialize>(form: &Form<People>, answer: &T, text: &str) -> anyhow::Result<Outcome> {
    print(form, answer, || {
        let mut lines = Text::default();
        for line in text.lines() {
            lines.add(PLAIN, line).line();
        }
        lines
    })
}

/// A number and what it counts: `1 object`, `2 objects`.
pub(super) fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// A report from a template of this program, in which a form that ends in `.html` or `.xml` escapes what it prints.
pub(super) fn render<T: Serialize>(form: &str, template: &str, report: T) -> anyhow::Result<String> {
    let mut environment = Environment::new();
    environment.add_filter("printable", printable);
    environment.add_filter("markdown", markdown);
    let text =
        environment.render_named_str(form, template, Serde(report)).context("cannot write the report")?;
    Ok(text + "\n")
}

/// Text without what XML cannot hold or nobody can see.
fn printable(text: &str) -> String {
    let is_lost = |letter: char| {
        matches!(letter, '\u{fffe}' | '\u{ffff}') || is_unprintable(letter) && !"\t\n\r".contains(letter)
    };
    text.replace(is_lost, "\u{fffd}")
}

/// Text that no reader of Markdown takes for anything else.
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
            // `@` turns an address into a link without any other markup.
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

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[arg(short, default_value = "table")]
        output: Form<People>,
    }

    fn read(form: &str) -> Result<Form<People>, String> {
        let line = Line::try_parse_from(["moor", "-o", form]).map_err(|error| error.to_string())?;
        Ok(line.output)
    }

    #[test]
    fn invalid_output_format_error_lists_the_valid_formats() {
        assert_eq!(Line::try_parse_from(["moor"]).unwrap().output, Form::People(People::Table));
        assert_eq!(read("yaml"), Ok(Form::Data(Data::Yaml)));
        let template = "{.a}".parse().unwrap();
        assert_eq!(read("jsonpath={.a}"), Ok(Form::Data(Data::JsonPath(template))));
        for (form, says) in
            [("xml", "table, json, yaml, jsonpath="), ("jsonpath=.a", "no {} is in it"), ("jsonpath={", "}")]
        {
            let error = read(form).unwrap_err();
            assert!(error.contains(says), "{form}: {error}");
        }
    }

    #[test]
    fn parts_stay_apart_from_each_other() {
        let part = |data: Data| data.part(&json!({"a": "b"})).unwrap();
        assert_eq!(part(Data::Json), "{\n  \"a\": \"b\"\n}\n");
        assert_eq!(part(Data::Yaml), "---\na: b\n");
        assert_eq!(part(Data::JsonPath("{.a}".parse().unwrap())), "b\n");
        assert_eq!(part(Data::JsonPath("{.a}{\"\\n\"}".parse().unwrap())), "b\n");
    }

    #[test]
    fn count_of_one_has_no_plural() {
        assert_eq!([0, 1, 2].map(|number| counted(number, "object")), ["0 objects", "1 object", "2 objects"]);
    }

    fn plain(text: &Text) -> String {
        anstream::adapter::strip_str(text.as_str()).to_string()
    }

    #[test]
    fn columns_fit_their_widest_cell_without_trailing_spaces() {
        let mut table = Table::new(["NAME", "READY", "REASON"]);
        table.row(["a-long-name", "True", ""]);
        table.styled([("b".to_owned(), BAD), ("False".to_owned(), PLAIN), ("Drifted".to_owned(), NOTE)]);
        assert_eq!(
            plain(&table.text()),
            "NAME          READY   REASON\na-long-name   True\nb             False   Drifted\n"
        );
    }

    #[test]
    fn control_characters_from_the_cluster_are_escaped_in_tables() {
        let mut table = Table::default();
        table.row(["\u{1b}[2Jgone\u{9b}31m\n"]);
        let text = table.text();
        assert_eq!(text.as_str(), "\\u{1b}[2Jgone\\u{9b}31m\\n\n");
    }

    #[test]
    fn bidirectional_controls_are_escaped_in_every_form() {
        let text = "admin\u{202e}nimda";
        let mut table = Table::default();
        table.row([text]);
        let json = Data::Json.text(&text).unwrap();
        let yaml = Data::Yaml.text(&text).unwrap();
        assert_eq!([table.text().as_str(), &json], ["admin\\u{202e}nimda\n", "\"admin\\u202enimda\"\n"]);
        assert_eq!(yaml, json);
    }

    #[test]
    fn a_style_ends_where_its_text_does() {
        let mut text = Text::default();
        text.add(BAD, "-").add(PLAIN, "rest").line();
        assert_eq!(text.as_str(), "\u{1b}[31m-\u{1b}[0mrest\n");
    }

    #[test]
    fn no_text_is_markup_in_markdown() {
        for (text, expected) in [
            ("alice", "alice"),
            ("a|b", "a\\|b"),
            ("<script>", "&lt;script&gt;"),
            ("![x](javascript:y)", "\\!\\[x\\]\\(javascript:y\\)"),
            ("https://evil.example", "https&#58;//evil.example"),
            ("WWW.evil.example", "WWW&#46;evil.example"),
            ("MailTo:a@evil.example", "MailTo&#58;a&#64;evil.example"),
            ("system:serviceaccount:ci:deployer 05:00:00Z", "system:serviceaccount:ci:deployer 05:00:00Z"),
            ("a\n\n# b", "a  \\# b"),
        ] {
            assert_eq!(markdown(text), expected);
        }
    }
}
