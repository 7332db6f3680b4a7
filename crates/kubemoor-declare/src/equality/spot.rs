//! The place of a declared value, and the origin of its kind.
//!
//! Entry point: [`Spot`]. Invariant: holds names and no value. Must not compare anything.

/// The place of a declared value: it decides what an absent or empty value means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A field of a struct: the server may leave out zero values and fill in
    /// defaults.
    Field,
    /// A field of a template that the server stores unchanged: the defaults are set in the objects made from
    /// it, as in the jobs of a CronJob.
    Template,
    /// An entry of a free map: kept as it is.
    Entry,
    /// A field that the schema does not list: the server may drop it.
    Unlisted,
}

/// The origin of a kind: it decides who may add to a value that is declared as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Family {
    /// A built-in kind that grants rights: nothing is added except the API groups of subjects.
    Rights,
    /// Kubernetes' own Pod, to which admission plugins add.
    Pod,
    /// Kubernetes' own: what is added is in a table.
    Core,
    /// A custom kind: additions follow its schema and the webhooks of its operator.
    #[default]
    Custom,
}

/// A place together with its name there.
#[derive(Clone, Copy, Debug)]
pub struct Spot<'a> {
    /// The name of the field or entry; empty for list elements.
    pub name: &'a str,
    /// What kind of place it is.
    pub place: Place,
    /// Whose the kind is.
    pub family: Family,
    /// The name of the enclosing field, as far as that is a part of the same declared value; for list
    /// elements the list's name.
    pub(super) within: &'a str,
    /// The name of the field that holds it, where it is a declared value of its own.
    pub(super) above: &'a str,
}

impl<'a> Spot<'a> {
    /// The place of a declared value.
    pub fn new(name: &'a str, place: Place, family: Family) -> Self {
        Self { name, place, family, within: "", above: "" }
    }

    /// The same in a field of this name.
    pub fn of(self, above: &'a str) -> Self {
        Self { above, ..self }
    }

    /// The name by which its fields know it.
    pub(super) fn holder(self) -> &'a str {
        if self.name.is_empty() { self.within } else { self.name }
    }

    /// A part of it; list elements have no name.
    pub(super) fn part(self, name: &'a str, place: Place) -> Self {
        Self { name, place, family: self.family, within: self.holder(), above: "" }
    }
}
