//! The output format of a command: the value of its flag `--output`.
//!
//! Entry points: [`Form`], [`Data`]. Invariant: every command accepts the same formats for programs. An
//! invalid template is refused before a cluster is contacted. Must not print.

use std::ffi::OsStr;
use std::marker::PhantomData;

use anyhow::Context;
use clap::builder::{
    PossibleValue, PossibleValuesParser, StringValueParser, TypedValueParser, ValueParserFactory,
};
use clap::{Arg, Command, ValueEnum};
use serde::Serialize;

use super::template::Template;

use kubemoor_declare::model::text::{escaped_json, is_unprintable};

/// The prefix of a template.
const JSON_PATH: &str = "jsonpath=";

/// The form of an answer; `P` are the forms for people that a command has.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::cli) enum Form<P> {
    /// For people.
    People(P),
    /// For programs.
    Data(Data),
}

/// The one form for people that most commands have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum People {
    /// For people
    Table,
}

/// A form for programs.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::cli) enum Data {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// A template that selects parts of the JSON.
    JsonPath(Template),
}

/// Reads a [`Form`].
#[derive(Clone, Debug)]
pub(in crate::cli) struct FormParser<P>(PhantomData<P>);

impl Data {
    /// An answer in this form.
    pub(in crate::cli) fn text<T: Serialize>(&self, answer: &T) -> anyhow::Result<String> {
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
    pub(in crate::cli) fn part<T: Serialize>(&self, answer: &T) -> anyhow::Result<String> {
        let text = self.text(answer)?;
        Ok(match self {
            Self::Json => text,
            Self::Yaml => format!("---\n{}\n", text.trim_end()),
            Self::JsonPath(_) if text.ends_with('\n') => text,
            Self::JsonPath(_) => text + "\n",
        })
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

#[cfg(test)]
mod tests;
