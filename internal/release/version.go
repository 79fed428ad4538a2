package release

// Version is the release that is being worked towards.
const Version = "0.1.0-dev"
