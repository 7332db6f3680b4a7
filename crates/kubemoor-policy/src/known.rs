//! Whether a path names a field that objects of a kind can have.
//!
//! Entry point: [`Pattern::unknown_field`]. Invariant: a field is unknown only if the schema lists
//! all fields; where any field is allowed, every field is known. Must not reject a path.

use std::fmt;

use super::nearest::nearest;
use super::pattern::{Pattern, Step};
use kubemoor_declare::path::Segment;
use kubemoor_declare::schema::{KindSchema, Shape};

/// A field that no object of a kind has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownField {
    /// The path up to it.
    pub path: String,
    /// The alternative.
    pub instead: Instead,
}

/// The name that was probably intended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Instead {
    /// A field of almost this name.
    Like(String),
    /// An element of a list.
    Element,
    /// Nothing like it.
    Nothing,
}

impl Pattern {
    /// The first field of the path that objects of the kind cannot have.
    pub fn unknown_field(&self, schema: &KindSchema) -> Option<UnknownField> {
        let mut ty = schema.root;
        for (place, step) in self.0.iter().enumerate() {
            let unknown = |instead| {
                let path = self.0.iter().take(place + 1).map(|step| Self([step.clone()].into()).to_string());
                Some(UnknownField { path: path.collect(), instead })
            };
            ty = match (schema.types.shape(ty), step) {
                (Shape::Any, _) => return None,
                (Shape::Scalar(_), _) => return unknown(Instead::Nothing),
                (Shape::Struct(_), Step::Any) => return None,
                (Shape::Struct(known), Step::Only(Segment::Field(name))) => match known.field(name) {
                    Some(field) => field.ty,
                    None if known.open => return None,
                    None => {
                        let names = known.fields.iter().map(|field| &*field.name);
                        let like = nearest(name, names).map(str::to_owned);
                        return unknown(like.map_or(Instead::Nothing, Instead::Like));
                    }
                },
                (Shape::Struct(_), Step::Only(_)) => return unknown(Instead::Nothing),
                (Shape::Map { value, .. }, _) => *value,
                (Shape::List { .. }, Step::Only(Segment::Field(name)))
                    if !name.bytes().all(|byte| byte.is_ascii_digit()) =>
                {
                    return unknown(Instead::Element);
                }
                (Shape::List { item, .. }, _) => *item,
            };
        }
        None
    }
}

impl fmt::Display for UnknownField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, instead } = self;
        match instead {
            Instead::Like(name) => write!(f, "there is no field {path}: did you mean {name}?"),
            Instead::Element => {
                write!(
                    f,
                    "there is no field {path}: a list is above it, so name an element, such as [name=app], or * for each"
                )
            }
            Instead::Nothing => write!(f, "there is no field {path}"),
        }
    }
}

#[cfg(test)]
mod tests;
