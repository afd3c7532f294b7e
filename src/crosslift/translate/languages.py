"""What models and programs call a language: `es` is also `spa`, `spa_Latn` and `es_XX`."""

from __future__ import annotations

from collections.abc import Collection

# ISO 639-1 -> the code that NLLB and FLORES use: ISO 639-3 and the script.
_LONG = dict(
    pair.split("=")
    for pair in """
    af=afr_Latn am=amh_Ethi ar=arb_Arab as=asm_Beng az=azj_Latn be=bel_Cyrl bg=bul_Cyrl bn=ben_Beng bs=bos_Latn
    ca=cat_Latn cs=ces_Latn cy=cym_Latn da=dan_Latn de=deu_Latn el=ell_Grek en=eng_Latn eo=epo_Latn es=spa_Latn
    et=est_Latn eu=eus_Latn fa=pes_Arab fi=fin_Latn fr=fra_Latn ga=gle_Latn gl=glg_Latn gu=guj_Gujr ha=hau_Latn
    he=heb_Hebr hi=hin_Deva hr=hrv_Latn hu=hun_Latn hy=hye_Armn id=ind_Latn ig=ibo_Latn is=isl_Latn it=ita_Latn
    ja=jpn_Jpan jv=jav_Latn ka=kat_Geor kk=kaz_Cyrl km=khm_Khmr kn=kan_Knda ko=kor_Hang ku=kmr_Latn ky=kir_Cyrl
    lo=lao_Laoo lt=lit_Latn lv=lvs_Latn mk=mkd_Cyrl ml=mal_Mlym mn=khk_Cyrl mr=mar_Deva ms=zsm_Latn mt=mlt_Latn
    my=mya_Mymr nb=nob_Latn ne=npi_Deva nl=nld_Latn nn=nno_Latn no=nob_Latn oc=oci_Latn pa=pan_Guru pl=pol_Latn
    ps=pbt_Arab pt=por_Latn ro=ron_Latn ru=rus_Cyrl sd=snd_Arab si=sin_Sinh sk=slk_Latn sl=slv_Latn so=som_Latn
    sq=als_Latn sr=srp_Cyrl sv=swe_Latn sw=swh_Latn ta=tam_Taml te=tel_Telu tg=tgk_Cyrl th=tha_Thai tl=tgl_Latn
    tr=tur_Latn uk=ukr_Cyrl ur=urd_Arab uz=uzn_Latn vi=vie_Latn wo=wol_Latn xh=xho_Latn yo=yor_Latn zh=zho_Hans
    zu=zul_Latn
    """.split()  # noqa: SIM905  readable so
)
_SHORT = {long: short for short, long in _LONG.items()}


def short_code(language: str) -> str:
    """Return the two-letter code of a language, or what was given where there is none: `es-ES`, `spa_Latn` -> `es`."""
    base = language.replace("-", "_").split("_")[0].lower()
    if base in _LONG:
        return base
    return _SHORT.get(language) or next((s for long, s in _SHORT.items() if long.split("_")[0] == base), base)


def spellings(language: str) -> list[str]:
    """Return what a language may be called, the given name first: es -> es, spa_Latn, spa."""
    short = short_code(language)
    long = _LONG.get(short, "")
    return list(dict.fromkeys(name for name in (language, short, long, long.split("_")[0]) if name))


def find_code(language: str, known: Collection[str]) -> str | None:
    """Return the first spelling of a language that is known, or `None`."""
    return next((name for name in spellings(language) if name in known), None)
