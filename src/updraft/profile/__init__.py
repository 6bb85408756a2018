"""Profiles: what an application needs at a load, learnt from its own batches (paper 5)."""

from updraft.profile.curve import Curve, Kind, fit_curve
from updraft.profile.learn import Accuracy, accuracy, learn, samples_of
from updraft.profile.model import Profile, ProfileError, Selectivity, load, save

__all__ = [
    "Accuracy",
    "Curve",
    "Kind",
    "Profile",
    "ProfileError",
    "Selectivity",
    "accuracy",
    "fit_curve",
    "learn",
    "load",
    "samples_of",
    "save",
]
