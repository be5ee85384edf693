//! Words that people bring along from other tools: each is answered with what does it here. Verbs of ply that
//! are not in this build are answered by name, so that nothing is mistaken for a typing error.

/// What to say to a word that is no verb.
pub(crate) struct Answer {
    pub(crate) message: String,
    pub(crate) hint: &'static str,
}

const FROM_OTHER_TOOLS: [(&str, &str); 26] = [
    ("pull", "ply fetch NAME[@RANGE] brings an image into the store"),
    ("images", "ply store ls lists the images on this host"),
    ("image", "ply store ls lists the images on this host"),
    ("rmi", "ply store rm DIGEST removes an image that nobody needs; ply gc removes all of them"),
    ("prune", "ply gc removes what nothing needs"),
    ("system", "ply gc removes what nothing needs; ply config shows the folders"),
    ("compose", "a composition is a ply.toml with [[service]] blocks, run by ply up"),
    ("kill", "ply stop APP asks it to end, and kills it after its --stop-timeout"),
    ("tag", "an image's name and version stand in its ply.toml: change them and run ply build"),
    ("save", "an image is one file: copy it from where ply build wrote it, or from ply store ls --json"),
    ("load", "ply run ./FILE.img runs an image file; ply fetch ./FILE.img brings it into the store"),
    ("container", "ply ps lists what runs; each verb stands at the top level"),
    ("attach", "ply logs APP -f follows its output; ply exec -t APP sh opens a shell beside it"),
    ("create", "ply run WHAT -d starts an app in the background"),
    ("start", "ply run --installed NAME starts again what was run last under that name"),
    ("top", "ply exec APP ps shows the processes inside; ply ps lists the instances"),
    ("port", "ply ps shows each app's published ports"),
    ("cp", "ply run --link HOST:CONTAINER binds a path; ply exec APP cat FILE > FILE copies one out"),
    ("install", "ply add NAME[@RANGE] adds a dependency; ply run NAME runs an app"),
    ("i", "ply add NAME[@RANGE] adds a dependency; ply run NAME runs an app"),
    ("uninstall", "ply rm APP forgets an app; take a dependency out of ply.toml to drop it"),
    ("remove", "ply rm APP forgets an app; take a dependency out of ply.toml to drop it"),
    ("upgrade", "ply update moves ply.lock to the newest versions in range"),
    ("list", "ply ps lists what runs; ply store ls what is stored; ply tree what a build uses"),
    ("ls", "ply ps lists what runs; ply store ls what is stored; ply tree what a build uses"),
    ("info", "ply config shows the folders and the source; ply inspect WHAT shows a package"),
];

const NOT_BUILT_YET: &[&str] = &[
    "up",
    "bundle",
    "rebase",
    "import",
    "export",
    "craft",
    "egress",
    "snapshot",
    "restore",
    "secret",
    "setup",
    "proxy",
    "reconcile",
    "sync",
    "audit",
    "notify",
    "ui",
    "dashboard",
    "login",
    "push",
    "whoami",
];

/// The answer to `word`, where it is one that people know from elsewhere or one of ply's own to come.
pub(crate) fn answer(word: &str) -> Option<Answer> {
    if let Some((_, hint)) = FROM_OTHER_TOOLS.iter().find(|(w, _)| *w == word) {
        return Some(Answer { message: format!("ply has no verb {word:?}"), hint });
    }
    NOT_BUILT_YET.contains(&word).then(|| Answer {
        message: format!("ply {word} is not in this version"),
        hint: "ply --help lists the verbs that are",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn no_answer_hides_a_verb() {
        for verb in crate::cli::Cli::command().get_subcommands() {
            assert!(answer(verb.get_name()).is_none(), "{}", verb.get_name());
        }
    }
}
