"""FNMF: clients factor their own rows, and components are aligned before they are averaged."""
