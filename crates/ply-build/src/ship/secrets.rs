//! Names that look like credentials. By name alone: what is inside is never read.

/// Files by their whole name.
const FILES: [&str; 31] = [
    ".boto",
    ".dockercfg",
    ".env",
    ".envrc",
    ".git-credentials",
    ".htpasswd",
    ".my.cnf",
    ".mylogin.cnf",
    ".netrc",
    "_netrc",
    ".npmrc",
    ".pgpass",
    ".pypirc",
    ".s3cfg",
    ".terraformrc",
    ".vault-token",
    "application_default_credentials.json",
    "client_secret.json",
    "credentials",
    "credentials.json",
    "id_dsa",
    "id_ecdsa",
    "id_ecdsa_sk",
    "id_ed25519",
    "id_ed25519_sk",
    "id_rsa",
    "kubeconfig",
    "master.key",
    "service-account.json",
    "terraform.tfstate",
    "terraform.tfvars",
];

/// Files by how their name ends.
const ENDINGS: [&str; 7] = [".key", ".p12", ".pfx", ".jks", ".keystore", ".kdbx", ".ppk"];

/// Folders, with everything below them.
const FOLDERS: [&str; 6] = [".ssh", ".aws", ".azure", ".gnupg", ".kube", ".password-store"];

/// Whether the last part of `path` is the name of a credential; `dir` says whether it is a folder.
pub fn looks_like_a_credential(path: &[u8], dir: bool) -> bool {
    let lower = super::last_part(path).to_ascii_lowercase();
    if dir {
        return FOLDERS.iter().any(|f| f.as_bytes() == lower);
    }
    // The login of container tools; the folder around it holds harmless things as well.
    let docker_login = lower == b"config.json" && path.to_ascii_lowercase().ends_with(b".docker/config.json");
    docker_login
        || FILES.iter().any(|f| f.as_bytes() == lower)
        || lower.starts_with(b".env.")
        || ENDINGS.iter().any(|e| lower.ends_with(e.as_bytes()))
}
