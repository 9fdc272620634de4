"""Named launches: one ``config/profiles/NAME.toml`` each."""

from kt_tui.profiles.document import export_text, profile_from_toml
from kt_tui.profiles.profile import ENGINES, Conditions, Profile, ProfileError, UnknownProfile
from kt_tui.profiles.store import (
    ProfileList,
    delete_profile,
    list_profiles,
    load_profile,
    name_problem,
    profile_path,
    save_profile,
)

__all__ = [
    "ENGINES",
    "Conditions",
    "Profile",
    "ProfileError",
    "ProfileList",
    "UnknownProfile",
    "delete_profile",
    "export_text",
    "list_profiles",
    "load_profile",
    "name_problem",
    "profile_from_toml",
    "profile_path",
    "save_profile",
]
