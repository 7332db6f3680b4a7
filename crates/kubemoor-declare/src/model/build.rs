//! Which build of the program this is.
//!
//! Entry points: [`VERSION`], [`commit`], [`compiler`]. The last two are what the build put into the environment
//! (`Makefile`, `deploy/image/build`): a build script would ask a repository that `cargo install` does not have.

/// The version of the package.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit that was built, where that is known.
pub fn commit() -> Option<&'static str> {
    option_env!("KUBEMOOR_COMMIT").filter(|commit| !commit.is_empty())
}

/// The compiler that built it, where that is known.
pub fn compiler() -> Option<&'static str> {
    option_env!("KUBEMOOR_RUSTC").filter(|compiler| !compiler.is_empty())
}
