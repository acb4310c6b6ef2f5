"""Scripts that train with Paceline or another library, each in the virtual environment of that library."""
