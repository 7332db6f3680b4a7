//! Objects of a type that k8s-openapi knows, as a watch brings them.
//!
//! Entry points: [`Typed`], [`Watch::of_one`]. Invariant: a watch of one object asks for its name alone, so that a right for
//! this name is enough.

use std::sync::Arc;

use kube::Resource as Kind;
use serde::de::DeserializeOwned;

use super::super::resource::Resource;
use super::source::Source;
use super::{Form, Watch};

/// A whole object.
pub struct Typed<K>(pub K);

impl<K> Form for Typed<K>
where
    K: Kind<DynamicType = ()> + DeserializeOwned + Clone + Send + 'static,
{
    type Wire = K;
    const PAGE: u32 = 10;
    const METADATA: bool = false;

    fn read(wire: K) -> Self {
        Self(wire)
    }

    fn version(&self) -> &str {
        self.0.meta().resource_version.as_deref().unwrap_or_default()
    }
}

impl<K> Watch<Typed<K>>
where
    K: Kind<DynamicType = ()> + DeserializeOwned + Clone + Send + 'static,
{
    /// A watch of the object `name` in `namespace` (`None` for a cluster-scoped one).
    pub(crate) fn of_one(client: kube::Client, namespace: Option<&str>, name: &str) -> Self {
        let resource = Resource::new(&K::group(&()), &K::version(&()), &K::kind(&()), &K::plural(&()));
        let mut watch = Self::new(client, &resource, namespace, None);
        let fields = Some(format!("metadata.name={name}"));
        watch.source = Arc::new(Source { fields, ..Source::clone(&watch.source) });
        watch
    }
}
