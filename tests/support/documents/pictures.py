"""Pictures of printed lines, whose text can be recognised."""

import io

from PIL import Image, ImageDraw, ImageFont


def printed(*lines: str) -> Image.Image:
    """Returns a picture of lines of print."""
    image = Image.new("L", (560, 60 + 40 * len(lines)), 255)
    draw = ImageDraw.Draw(image)
    font = ImageFont.load_default(size=26)
    for number, line in enumerate(lines):
        draw.text((20, 20 + 40 * number), line, font=font, fill=0)
    return image


def picture_file(image: Image.Image, form: str, **options: object) -> bytes:
    """Returns a file of the format `form`: PNG, JPEG or TIFF. `options` are those of Pillow."""
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()
